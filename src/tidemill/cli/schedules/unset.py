"""`tidemill schedules unset`: let settings follow the code again."""

from __future__ import annotations

import click

from tidemill.app import Tidemill
from tidemill.cli import complete
from tidemill.cli.output import echo
from tidemill.cli.overriding import refuse_unknown, tell_unset
from tidemill.cli.schedules.set import READERS
from tidemill.cli.schedules.words import overridden, rule
from tidemill.cli.secrets import Redaction
from tidemill.cli.target import Target, with_target
from tidemill.schedules.views import ScheduleView


@click.command()
@click.argument("name", shell_complete=complete.schedules)
@click.argument("settings", nargs=-1, metavar="[SETTING]...")
@with_target
def unset(target: Target, name: str, settings: tuple[str, ...]) -> int:
    """Let settings of a schedule follow the code again: those named, or all."""
    refuse_unknown(settings, READERS, of="schedules")

    async def clear(app: Tidemill) -> tuple[ScheduleView, ScheduleView]:
        before = await app.schedules.get(name)
        after = await app.schedules.clear_override(name, *settings)
        return before, Redaction().schedule(app, after)

    before, after = target.run(clear)
    held = before.override.changes.given() if before.override else {}
    if not tell_unset(target, f"schedule {name!r}", after, names=settings, held=held):
        return 1
    if not target.json:
        again = f"follows the code again: {rule(after.settings)}"
        echo(f"{name}: {overridden(after.override) if after.override else again}")
    return 0
