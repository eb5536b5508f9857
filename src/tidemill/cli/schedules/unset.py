"""`tidemill schedules unset`: let settings follow the code again."""

from __future__ import annotations

import click

from tidemill.app import Tidemill
from tidemill.cli import complete
from tidemill.cli.nearest import instead_of
from tidemill.cli.output import note, print_json
from tidemill.cli.schedules.set import READERS
from tidemill.cli.schedules.words import overridden, rule
from tidemill.cli.target import Target, with_target
from tidemill.schedules.views import ScheduleView


@click.command()
@click.argument("name", shell_complete=complete.schedules)
@click.argument("settings", nargs=-1, metavar="[SETTING]...")
@with_target
def unset(target: Target, name: str, settings: tuple[str, ...]) -> int:
    """Let settings of a schedule follow the code again: those named, or all."""
    for setting in settings:
        if setting not in READERS:
            raise click.UsageError(f"schedules have no setting {setting!r}; {instead_of(setting, READERS)}")

    async def clear(app: Tidemill) -> tuple[ScheduleView, ScheduleView]:
        before = await app.schedules.get(name)
        return before, await app.schedules.clear_override(name, *settings)

    before, after = target.run(clear)
    if target.json:
        print_json(after)
    held = before.override.changes.given() if before.override else {}
    if not held or (settings and not set(settings) & set(held)):
        note(f"nothing was changed: of schedule {name!r} {', '.join(held) or 'nothing'} is overridden")
        return 1
    if not target.json:
        left = (
            overridden(after.override)
            if after.override
            else f"follows the code again: {rule(after.settings)}"
        )
        click.echo(f"{name}: {left}")
    return 0
