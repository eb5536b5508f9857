"""`tidemill schedules`: all of them at a glance, page by page."""

from __future__ import annotations

import click

from tidemill.app import Tidemill
from tidemill.cli.groups import Group
from tidemill.cli.numbers import Whole
from tidemill.cli.output import moment, note, print_json
from tidemill.cli.schedules.words import last, rule, state
from tidemill.cli.secrets import Redaction, with_secrets
from tidemill.cli.table import Column, print_table
from tidemill.cli.target import Target, with_target
from tidemill.schedules.schedule import PRESENT, Origin
from tidemill.schedules.views import SchedulePage, ScheduleView

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


NONE_YET = "there are no schedules yet; a worker writes those that code declares when it starts"


@click.group(cls=Group, invoke_without_command=True)
@click.option(
    "--state", "states", type=click.Choice(_STATES), multiple=True, help="Only those in that state."
)
@click.option("--origin", type=click.Choice(_ORIGINS), help="Only what code declared, or calls made.")
@click.option("--limit", type=Whole(1, 1000), default=100, show_default=True, help="How many at most.")
@click.option("--cursor", metavar="CURSOR", help="Go on where a page ended.")
@with_target
@with_secrets
def schedules(
    target: Target,
    *,
    redaction: Redaction,
    states: tuple[str, ...],
    origin: str | None,
    limit: int,
    cursor: str | None,
) -> None:
    """Show the schedules, newest first; or look at one, pause, run, set or remove it."""
    subcommand = click.get_current_context().invoked_subcommand
    if subcommand is not None:
        if states or origin or cursor:
            raise click.UsageError(
                f"schedules {subcommand} is about one schedule: give its name, and no filter"
            )
        return

    async def look(app: Tidemill) -> SchedulePage:
        found = await app.schedules.list(states=states or PRESENT, origin=origin, limit=limit, cursor=cursor)
        return SchedulePage(tuple(redaction.schedule(app, view) for view in found.schedules), found.cursor)

    page = target.run(look)
    if target.json:
        print_json(page)
        return
    if not page.schedules:
        note("no schedule matches" if states or origin else NONE_YET)
        return
    print_table(COLUMNS, [_row(view) for view in page.schedules])
    if page.cursor is not None:
        note(f"there are more: --cursor {page.cursor!r}")


def _row(view: ScheduleView) -> tuple[object, ...]:
    following = moment(view.next[0]) if view.next else ""
    return view.name, view.task, rule(view.settings), following, last(view), view.origin, state(view)
