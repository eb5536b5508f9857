"""The diagram of a flow: its steps as boxes and its dependencies as SVG paths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from unicodedata import east_asian_width

from tidemill.core.flow_layout import LayoutBox, LayoutEdge, LayoutPoint, layout_flow
from tidemill.core.jobs import Job, flow_job_id
from tidemill.flows.views import FlowView, StepView

MAX_STEPS = 500
MAX_EDGES = 2000
"""Larger diagrams are unreadable and take the browser seconds to draw; the table lists every step."""
NAME_CHARS, TASK_CHARS = 21, 24
ARROW_PIXELS = 6


@dataclass(frozen=True)
class DiagramStep:
    """One step of a flow, as a box of the diagram.

    - `state`: the state of the step, or of its only job while this job is live
    - `name`, `task`: shortened to fit into the box
    - `job`: the id of the job, for a step with only one job
    - `job_id_prefix`: the beginning of all job ids, for a step with one job per element of a list

    `job` and `job_id_prefix` are None until the step starts."""

    box: LayoutBox
    step: StepView
    state: str
    name: str
    task: str
    job: str | None
    job_id_prefix: str | None


@dataclass(frozen=True)
class DiagramEdge:
    """A line of the diagram from a step to a step that depends on it.

    - `path`: the `d` attribute of an SVG path
    - `kind`: `passed` if the first step is done, `broken` if it failed, else `open`"""

    path: str
    kind: str


@dataclass(frozen=True)
class FlowDiagram:
    steps: tuple[DiagramStep, ...]
    edges: tuple[DiagramEdge, ...]
    width: float
    height: float


def build_flow_diagram(view: FlowView, jobs: Mapping[str, Job]) -> FlowDiagram | None:
    """Returns the diagram of a flow, or None if it would have over 500 steps or 2000 edges. `jobs` maps names
    of steps to their live jobs."""
    if len(view.steps) > MAX_STEPS or sum(len(step.parents) for step in view.steps) > MAX_EDGES:
        return None
    drawing = layout_flow(tuple((step.name, step.parents) for step in view.steps))
    steps = {step.name: step for step in view.steps}
    return FlowDiagram(
        tuple(_diagram_step(view, box, steps[box.name], jobs.get(box.name)) for box in drawing.boxes),
        tuple(_diagram_edge(edge, steps[edge.source]) for edge in drawing.edges),
        drawing.width,
        drawing.height,
    )


def truncate_to_width(text: str, max_width: int) -> str:
    """Returns the text, cut to a width of `max_width` letters if it is longer; a cut text ends with an
    ellipsis. A Chinese character counts as two letters."""
    width = 0
    for at, letter in enumerate(text):
        width += 2 if east_asian_width(letter) in "WF" else 1
        if width > max_width:
            return f"{text[: max(at - 1, 1)]}…"
    return text


def _diagram_step(view: FlowView, box: LayoutBox, step: StepView, job: Job | None) -> DiagramStep:
    started = step.count is not None
    first = flow_job_id(view.id, step.name)
    return DiagramStep(
        box=box,
        step=step,
        state=str(step.state if job is None else job.state),
        name=truncate_to_width(step.name, NAME_CHARS),
        task=truncate_to_width(step.task, TASK_CHARS),
        job=first if started and not step.mapped else None,
        job_id_prefix=first.removesuffix("0") if started and step.mapped else None,
    )


def _diagram_edge(edge: LayoutEdge, source: StepView) -> DiagramEdge:
    kind = {"done": "passed", "failed": "broken"}.get(source.state, "open")
    x, y = edge.points[-1]
    left, half = x - ARROW_PIXELS, ARROW_PIXELS * 0.7
    arrow = f"M{left:g} {y - half:g}L{x:g} {y:g}L{left:g} {y + half:g}"
    return DiagramEdge(f"{_edge_path(edge.points)}{arrow}", kind)


def _edge_path(points: tuple[LayoutPoint, ...]) -> str:
    (x, y), *rest = points
    commands = [f"M{x:g} {y:g}"]
    for index, (right, level) in enumerate(rest):
        if index % 2:
            commands.append(f"H{right:g}")
        else:
            middle = (x + right) / 2
            commands.append(f"C{middle:g} {y:g} {middle:g} {level:g} {right:g} {level:g}")
        x, y = right, level
    return "".join(commands)
