"""`tidemill schedules`: all of them at a glance, page by page."""

from __future__ import annotations

import click

from tidemill.cli.groups import Group
from tidemill.cli.output import moment, note, print_json
from tidemill.cli.schedules.words import last, rule, state
from tidemill.cli.table import Column, print_table
from tidemill.cli.target import Target, with_target
from tidemill.schedules.schedule import PRESENT, Origin

_STATES = [state.value for state in PRESENT]
_ORIGINS = [origin.value for origin in Origin]

COLUMNS = (
    Column("schedule", cut="end", least=8),
    Column("task", goes=3, cut="start"),
    Column("ticks"),
    Column("next", goes=1),
    Column("last", goes=2),
    Column("origin", goes=4),
    Column("state", cut="end", least=8),
)


@click.group(cls=Group, invoke_without_command=True)
@click.option(
    "--state", "states", type=click.Choice(_STATES), multiple=True, help="Only those in that state."
)
@click.option("--origin", type=click.Choice(_ORIGINS), help="Only what code declared, or calls made.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="How many at most."
)
@click.option("--cursor", metavar="CURSOR", help="Go on where a page ended.")
@with_target
def schedules(
    target: Target, *, states: tuple[str, ...], origin: str | None, limit: int, cursor: str | None
) -> None:
    """Show the schedules, newest first; or look at one, pause, run, set or remove it."""
    if click.get_current_context().invoked_subcommand is not None:
        return
    page = target.run(
        lambda app: app.schedules.list(states=states or PRESENT, origin=origin, limit=limit, cursor=cursor)
    )
    if target.json:
        print_json(page)
        return
    print_table(
        COLUMNS,
        [
            (
                view.name,
                view.task,
                rule(view.settings),
                moment(view.next[0]) if view.next else "",
                last(view),
                view.origin,
                state(view),
            )
            for view in page.schedules
        ],
    )
    if page.cursor is not None:
        note(f"there are more: add --cursor '{page.cursor}'")
