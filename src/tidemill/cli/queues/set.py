"""`tidemill queues set`: put settings over what code declared."""

from __future__ import annotations

from typing import Any

import click
from msgspec import UNSET

from tidemill.app import Tidemill
from tidemill.cli import complete
from tidemill.cli.output import echo, print_json
from tidemill.cli.overriding import assignments
from tidemill.cli.queues.ending import Ending, with_ending
from tidemill.cli.queues.words import overridden, who
from tidemill.cli.target import Target, with_target
from tidemill.inspect.views import QueueView
from tidemill.settings.catalogue import of_queue


@click.command("set")
@click.argument("name", shell_complete=complete.queues)
@click.argument("words", metavar="SETTING=VALUE...", nargs=-1, required=True)
@with_ending
@click.option("--reason", help="Kept with the override.")
@with_target
def set_(target: Target, name: str, *, words: tuple[str, ...], ending: Ending, reason: str | None) -> None:
    """Put settings of a queue over what code declared, until they are unset.

    They hold at once, on every worker, and no deploy erases them: concurrency=5 weight=2 max_length=none
    key_concurrency=1 crash_limit=3 keep_done=age=86400,count=1000 (and keep_failed, keep_cancelled).
    """
    changes = _changes(name, words)

    async def put(app: Tidemill) -> QueueView:
        end = await ending.at(app)
        return await app.inspect.override(
            name, by=who(), reason=reason, until=UNSET if end is None else end, **changes
        )

    view = target.run(put)
    if target.json:
        print_json(view)
    elif view.override is not None:
        echo(f"{name}: {overridden(view.override)}")


def _changes(queue: str, words: tuple[str, ...]) -> Any:
    known = of_queue(queue)
    given = assignments(words, known, of="queues", example="concurrency=5")
    return {name: _value(known[name].kind, name, text) for name, text in given}


def _value(kind: Any, name: str, text: str) -> Any:
    """`none` takes a limit away, where a setting can do without one."""
    try:
        return kind.read(None) if text.lower() == "none" else kind.read_text(text)
    except ValueError:
        raise click.UsageError(f"{name}: must be {kind.as_text}{_or_none(kind)}, is {text!r}") from None


def _or_none(kind: Any) -> str:
    try:
        kind.read(None)
    except ValueError:
        return ""
    return ", or none for no limit"
