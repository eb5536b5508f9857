"""`tidemill schedules set`: put settings over what code declared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from msgspec import UNSET

from tidemill.app import Tidemill
from tidemill.cli import complete, times
from tidemill.cli.output import echo, print_json
from tidemill.cli.overriding import assignments
from tidemill.cli.queues.ending import Ending, with_ending
from tidemill.cli.queues.words import who
from tidemill.cli.schedules.words import overridden
from tidemill.cli.secrets import Redaction
from tidemill.cli.target import Target, with_target
from tidemill.schedules.views import ScheduleView


@click.command("set")
@click.argument("name", shell_complete=complete.schedules)
@click.argument("words", metavar="SETTING=VALUE...", nargs=-1, required=True)
@with_ending
@click.option("--reason", help="Kept with the override.")
@with_target
def set_(target: Target, name: str, *, words: tuple[str, ...], ending: Ending, reason: str | None) -> None:
    """Put settings of a schedule over what code declared, until they are unset.

    They hold at once, and no deploy erases them: cron='0 4 * * *' tz=Asia/Shanghai every=30m jitter=5m
    start=2026-05-01T08:00 end=none catch_up=skip overlap=allow.
    """
    options = _options(words)

    async def put(app: Tidemill) -> ScheduleView:
        end = await ending.at(app)
        until = UNSET if end is None else end
        changed = await app.schedules.override(name, by=who(), reason=reason, until=until, **options)
        return Redaction().schedule(app, changed)

    view = target.run(put)
    if target.json:
        print_json(view)
    elif view.override is not None:
        echo(f"{name}: {overridden(view.override)}")


def _options(words: tuple[str, ...]) -> Any:
    given = assignments(words, READERS, of="schedules", example="cron='0 4 * * *'")
    return {name: READERS[name](name, text) for name, text in given}


def _duration(name: str, text: str) -> float:
    return _read(times.duration, name, text)


def _time(name: str, text: str) -> float | None:
    return None if text.lower() == "none" else _read(times.moment, name, text)


def _read(callback: Callable[..., float | None], name: str, text: str) -> float:
    try:
        value = callback(click.get_current_context(), None, text)
    except click.BadParameter as error:
        raise click.UsageError(f"{name}: {error.message}") from None
    return value or 0.0


def _text(_: str, text: str) -> str:
    return text


READERS: dict[str, Callable[[str, str], Any]] = {
    "cron": _text,
    "tz": _text,
    "every": _duration,
    "start": _time,
    "end": _time,
    "catch_up": _text,
    "overlap": _text,
    "jitter": _duration,
}
