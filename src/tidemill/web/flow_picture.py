"""A flow's drawing with what is shown in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from unicodedata import east_asian_width

from tidemill.core.flow_jobs import job_id
from tidemill.core.graph_drawing import Box, Edge, Point, draw
from tidemill.core.job import Job
from tidemill.flows.views import FlowView, StepView

MOST_STEPS = 500
MOST_EDGES = 2000
"""Beyond that nobody can read a picture, and a browser takes seconds to draw it. The table has all of it."""
NAME_WIDTH, TASK_WIDTH = 21, 24
ARROW = 6


@dataclass(frozen=True)
class ShownStep:
    """`state` is that of its job where it is one, `job` the id of that; `jobs` is what the ids of many begin
    with. Both are None until it begins."""

    box: Box
    step: StepView
    state: str
    name: str
    task: str
    job: str | None
    jobs: str | None


@dataclass(frozen=True)
class ShownEdge:
    """`path` is for the d of an SVG path, `kind` is passed, broken or open."""

    path: str
    kind: str


@dataclass(frozen=True)
class Picture:
    steps: tuple[ShownStep, ...]
    edges: tuple[ShownEdge, ...]
    width: float
    height: float


def picture_of(view: FlowView, jobs: Mapping[str, Job]) -> Picture | None:
    """None when it would be too large to be read."""
    if len(view.steps) > MOST_STEPS or sum(len(step.parents) for step in view.steps) > MOST_EDGES:
        return None
    drawing = draw(tuple((step.name, step.parents) for step in view.steps))
    steps = {step.name: step for step in view.steps}
    return Picture(
        tuple(_step(view, box, steps[box.name], jobs.get(box.name)) for box in drawing.boxes),
        tuple(_edge(edge, steps[edge.source]) for edge in drawing.edges),
        drawing.width,
        drawing.height,
    )


def cut(text: str, most: int) -> str:
    """So much of it as has room; a Chinese character takes that of two letters."""
    width = 0
    for at, letter in enumerate(text):
        width += 2 if east_asian_width(letter) in "WF" else 1
        if width > most:
            return f"{text[: max(at - 1, 1)]}…"
    return text


def _step(view: FlowView, box: Box, step: StepView, job: Job | None) -> ShownStep:
    begun = step.count is not None
    first = job_id(view.id, step.name)
    return ShownStep(
        box=box,
        step=step,
        state=str(step.state if job is None else job.state),
        name=cut(step.name, NAME_WIDTH),
        task=cut(step.task, TASK_WIDTH),
        job=first if begun and not step.mapped else None,
        jobs=first.removesuffix("0") if begun and step.mapped else None,
    )


def _edge(edge: Edge, source: StepView) -> ShownEdge:
    kind = {"done": "passed", "failed": "broken"}.get(source.state, "open")
    x, y = edge.points[-1]
    arrow = f"M{x - ARROW:g} {y - ARROW * 0.7:g}L{x:g} {y:g}L{x - ARROW:g} {y + ARROW * 0.7:g}"
    return ShownEdge(f"{_line(edge.points)}{arrow}", kind)


def _line(points: tuple[Point, ...]) -> str:
    (x, y), *rest = points
    said = [f"M{x:g} {y:g}"]
    for at, (right, level) in enumerate(rest):
        if at % 2:
            said.append(f"H{right:g}")
        else:
            middle = (x + right) / 2
            said.append(f"C{middle:g} {y:g} {middle:g} {level:g} {right:g} {level:g}")
        x, y = right, level
    return "".join(said)
