"""`tidemill queues unset`: let settings follow the code again."""

from __future__ import annotations

import click

from tidemill.app import Tidemill
from tidemill.cli import complete
from tidemill.cli.output import echo
from tidemill.cli.overriding import refuse_unknown, tell_unset
from tidemill.cli.queues.words import overridden, unusual
from tidemill.cli.target import Target, with_target
from tidemill.inspect.views import QueueView
from tidemill.settings.catalogue import of_queue


@click.command()
@click.argument("name", shell_complete=complete.queues)
@click.argument("settings", nargs=-1, metavar="[SETTING]...")
@with_target
def unset(target: Target, name: str, settings: tuple[str, ...]) -> int:
    """Let settings of a queue follow the code again: those named, or all."""
    refuse_unknown(settings, of_queue(name), of="queues")

    async def clear(app: Tidemill) -> tuple[QueueView, QueueView]:
        before = await app.inspect.queue(name)
        return before, await app.inspect.clear_override(name, *settings)

    before, after = target.run(clear)
    held = before.override.changes.given() if before.override else {}
    if not tell_unset(target, f"queue {name!r}", after, names=settings, held=held):
        return 1
    if not target.json:
        left = overridden(after.override) if after.override else "follows the code again"
        echo(f"{name}: {left} {unusual(after) if after.override is None else ''}".rstrip())
    return 0
