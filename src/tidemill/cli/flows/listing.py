"""`tidemill flows`: find flows."""

from __future__ import annotations

import click

from tidemill.cli import complete
from tidemill.cli.groups import Group
from tidemill.cli.numbers import Whole
from tidemill.cli.output import moment, note, print_json
from tidemill.cli.table import Column, print_table
from tidemill.cli.target import Target, with_target
from tidemill.core.graph_state import FlowState, StepState
from tidemill.flows.views import FlowView

COLUMNS = (
    Column("id"),
    Column("state"),
    Column("progress", right=True),
    Column("steps", goes=2),
    Column("created", goes=3),
    Column("note", goes=1, cut="end", least=17),
)


@click.group(cls=Group, invoke_without_command=True)
@click.option("--name", shell_complete=complete.flow_names, help="Flows of this name.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state.value for state in FlowState]),
    help="In this state; may be repeated.",
)
@click.option("--limit", default=50, show_default=True, type=Whole(1, 1000), help="How many.")
@click.option("--cursor", help="Go on where the last page ended.")
@with_target
def flows(
    target: Target, *, name: str | None, states: tuple[str, ...], limit: int, cursor: str | None
) -> None:
    """Find flows, newest first; or look at one, cancel or retry it."""
    subcommand = click.get_current_context().invoked_subcommand
    if subcommand is not None:
        if name or states or cursor:
            raise click.UsageError(f"flows {subcommand} is about one flow: give its id, and no filter")
        return
    page = target.run(
        lambda app: app.inspect.flows(name=name, states=states or None, limit=limit, cursor=cursor)
    )
    if target.json:
        print_json(page)
        return
    if not page.flows:
        note("no flow matches" if name or states else "there are no flows yet")
        return
    print_table(
        COLUMNS,
        [
            (view.id, view.state, f"{view.progress:.0%}", _steps(view), moment(view.created), view.reason)
            for view in page.flows
        ],
    )
    if page.cursor is not None:
        note(f"there are more: --cursor {page.cursor!r}")


def _steps(view: FlowView) -> str:
    done = sum(step.state is StepState.DONE for step in view.steps)
    return f"{done} of {len(view.steps)}"
