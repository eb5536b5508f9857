"""`tidemill flows show`: one flow as a tree."""

from __future__ import annotations

from collections.abc import Iterator

import click

from tidemill.cli.output import moment, print_fields, print_json, printable
from tidemill.cli.target import Target, with_target
from tidemill.flows.views import FlowView, StepView


@click.command()
@click.argument("id")
@with_target
def show(target: Target, id: str) -> None:  # noqa: A002 - the word for it
    """Show one flow with its steps."""
    view = target.run(lambda app: app.inspect.flow(id))
    if target.json:
        print_json(view)
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
    click.echo()
    for line in tree(view):
        click.echo(printable(line))


def tree(view: FlowView) -> Iterator[str]:
    """A step stands below the one it follows; one that follows several, below the last of them."""
    below: dict[str | None, list[StepView]] = {}
    order = {step.name: number for number, step in enumerate(view.steps)}
    for step in view.steps:
        below.setdefault(max(step.parents, key=order.__getitem__, default=None), []).append(step)
    left = _branches(below.get(None, []), "")
    while left:
        step, indent, last = left.pop()
        yield f"{indent}{'└─' if last else '├─'} {_line(step)}"
        left += _branches(below.get(step.name, []), indent + ("   " if last else "│  "))


def _branches(steps: list[StepView], indent: str) -> list[tuple[StepView, str, bool]]:
    """The first comes last: it is taken from the end. No recursion, because a chain may be long."""
    return [(step, indent, step is steps[-1]) for step in reversed(steps)]


def _line(step: StepView) -> str:
    counts = [
        (step.done, "done"),
        (step.live, "under way"),
        (step.failed, "failed"),
        (step.compensated, "compensated"),
    ]
    told = [f"{count} {word}" for count, word in counts if count] if step.mapped else []
    if step.mapped and step.count is not None:
        told.insert(0, f"{step.count} jobs")
    if step.compensated and not step.mapped:
        told.append("compensated")
    if step.waits_for:
        told.append(f"after {', '.join(step.waits_for)}")
    return f"{step.name}  {step.state}" + (f" ({', '.join(told)})" if told else "")
