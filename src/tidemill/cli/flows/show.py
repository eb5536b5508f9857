"""`tidemill flows show`: one flow as a tree."""

from __future__ import annotations

from collections.abc import Iterator

import click
import msgspec

from tidemill.app import Tidemill
from tidemill.cli import complete
from tidemill.cli.flows.under_way import Jobs, jobs_under_way, state_of
from tidemill.cli.output import echo, moment, print_fields, print_json
from tidemill.cli.target import Target, with_target
from tidemill.core.states import State
from tidemill.flows.views import FlowView, StepView


@click.command()
@click.argument("id", shell_complete=complete.flows)
@with_target
def show(target: Target, id: str) -> None:  # noqa: A002 - the word for it
    """Show one flow with its steps."""
    view, jobs = target.run(lambda app: _seen(app, id))
    if target.json:
        print_json(_as_data(view, jobs))
        return
    print_fields(
        {
            "flow": view.id,
            "state": view.state,
            "progress": f"{view.progress:.0%}",
            "created": moment(view.created),
            "due": moment(view.due) or None,
            "finished": moment(view.finished) or None,
            "kept until": moment(view.until) or None,
            "reason": view.reason,
        }
    )
    echo()
    for line in tree(view, jobs):
        echo(line)


async def _seen(app: Tidemill, flow: str) -> tuple[FlowView, Jobs]:
    view = await app.inspect.flow(flow)
    return view, await jobs_under_way(app, view)


def _as_data(view: FlowView, jobs: Jobs) -> dict[str, object]:
    """What its jobs do stands beside what the flow knows of a step."""
    data: dict[str, object] = msgspec.to_builtins(view)
    steps = [msgspec.to_builtins(step) | {"jobs": jobs.get(step.name, {})} for step in view.steps]
    return data | {"steps": steps}


def tree(view: FlowView, jobs: Jobs) -> Iterator[str]:
    """A step stands below the one it follows; one that follows several, below the last of them."""
    below: dict[str | None, list[StepView]] = {}
    order = {step.name: number for number, step in enumerate(view.steps)}
    for step in view.steps:
        below.setdefault(max(step.parents, key=order.__getitem__, default=None), []).append(step)
    left = _branches(below.get(None, []), "")
    while left:
        step, indent, last = left.pop()
        yield f"{indent}{'└─' if last else '├─'} {_line(step, jobs)}"
        left += _branches(below.get(step.name, []), indent + ("   " if last else "│  "))


def _branches(steps: list[StepView], indent: str) -> list[tuple[StepView, str, bool]]:
    """The first comes last: it is taken from the end. No recursion, because a chain may be long."""
    return [(step, indent, step is steps[-1]) for step in reversed(steps)]


def _line(step: StepView, jobs: Jobs) -> str:
    told = [f"{count} {word}" for count, word in _counts(step, jobs) if count] if step.mapped else []
    if step.mapped and step.count is not None:
        told.insert(0, f"{step.count} jobs")
    if step.compensated and not step.mapped:
        told.append("compensated")
    if step.waits_for:
        told.append(f"after {', '.join(step.waits_for)}")
    return f"{step.name}  {state_of(step, jobs)}" + (f" ({', '.join(told)})" if told else "")


def _counts(step: StepView, jobs: Jobs) -> Iterator[tuple[int, str]]:
    """What has not ended is told by state where all of it was looked at."""
    its = jobs.get(step.name)
    yield step.done, "done"
    if its is None or its.total() < step.live:
        yield step.live, "under way"
    else:
        yield from ((its[state], state) for state in State)
    yield step.failed, "failed"
    yield step.compensated, "compensated"
