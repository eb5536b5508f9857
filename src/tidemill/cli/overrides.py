"""Options and output that set, unset, pause and close share: SETTING=VALUE, --until, --for, --reason."""

from __future__ import annotations

import functools
import getpass
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click
from msgspec import UNSET

from tidemill.app import Tidemill
from tidemill.cli import options as cli_options
from tidemill.cli.formatting import format_override
from tidemill.cli.output import echo, note, print_json, suggest_names
from tidemill.cli.store_options import CommandTarget
from tidemill.core.overrides import Override


@dataclass(frozen=True)
class EndOption:
    """The end given with --until or --for. `until` is a wall time, `seconds` counts from now. Both are None
    if the user gave no end."""

    until: float | None
    seconds: float | None

    async def resolve(self, app: Tidemill) -> float | None:
        """Returns the end as wall time by the store's clock; None if no end was given."""
        if self.seconds is None:
            return self.until
        return (await app.store.read_clock()).wall + self.seconds


@dataclass(frozen=True)
class OverrideOptions:
    """The values of the options --until, --for and --reason of a set command."""

    end_option: EndOption
    reason: str | None

    def is_given(self) -> bool:
        return (self.end_option, self.reason) != (EndOption(None, None), None)

    async def arguments(self, app: Tidemill) -> Any:
        """Returns the keyword arguments `by`, `reason` and `until` for the call that stores the override. If
        the user gave no end, the present end stays."""
        end = await self.end_option.resolve(app)
        return {"by": current_operator(), "reason": self.reason, "until": UNSET if end is None else end}


def with_end(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator that adds --until and --for to a command. The command receives them as `end_option`."""

    @click.option(
        "--until",
        callback=cli_options.parse_time,
        metavar="TIME",
        help="When it ends: 2026-05-01T08:00.",
    )
    @click.option(
        "--for",
        "seconds",
        callback=cli_options.parse_duration_option,
        metavar="DURATION",
        help="How long it lasts: 90s, 10m, 1h30m, 2d.",
    )
    @functools.wraps(command)
    def wrapped(*args: Any, until: float | None, seconds: float | None, **options: Any) -> Any:
        if until is not None and seconds is not None:
            raise click.UsageError("give either --until or --for, not both")
        return command(*args, end_option=EndOption(until, seconds), **options)

    return wrapped


def with_override_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator that adds --until, --for and --reason to a command. The command receives them as
    `override_options`."""

    @with_end
    @click.option("--reason", help="Why; stored with the override.")
    @functools.wraps(command)
    def wrapped(*args: Any, end_option: EndOption, reason: str | None, **options: Any) -> Any:
        return command(*args, override_options=OverrideOptions(end_option, reason), **options)

    return wrapped


def parse_assignments(
    words: Sequence[str], known: Iterable[str], *, of: str, example: str
) -> Iterator[tuple[str, str]]:
    """Yields (setting, value) for each word SETTING=VALUE. Raises a usage error for an unknown setting. Error
    messages use `of`, such as "queues", and `example`, an assignment."""
    seen: set[str] = set()
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise click.UsageError(f"{word!r} is not SETTING=VALUE, such as {example}")
        refuse_unknown_settings([name], known, of=of)
        if name in seen:
            raise click.UsageError(f"{name} is given twice")
        seen.add(name)
        yield name, text


def refuse_unknown_settings(names: Sequence[str], known: Iterable[str], *, of: str) -> None:
    for name in names:
        if name not in known:
            raise click.UsageError(f"{of} have no setting {name!r}; {suggest_names(name, known)}")


def report_set(target: CommandTarget, name: str, view: object, override: Override[Any] | None) -> None:
    """Prints the `override` that a set command has stored. `view` is the queue, pool or schedule after the
    change."""
    if target.json:
        print_json(view)
    elif override is not None:
        echo(f"{name}: {format_override(override)}")


def report_unset(
    target: CommandTarget,
    noun: str,
    name: str,
    *,
    settings: Sequence[str],
    view: object,
    before: Override[Any] | None,
    after: Override[Any] | None,
    declared_text: str = "",
) -> int:
    """Prints the result of an unset command and returns the exit code: 0 if an override was removed, else 1.

    - `noun`: "queue", "pool" or "schedule"
    - `settings`: the settings to unset; empty means all
    - `view`: the queue, pool or schedule after the change
    - `before`, `after`: the overrides before and after the change
    - `declared_text`: printed if no override is left"""
    held = {} if before is None else before.changes.given()
    if target.json:
        print_json(view)
    if not held or (settings and not set(settings) & set(held)):
        note(f"nothing was changed: of {noun} {name!r} {', '.join(held) or 'nothing'} is overridden")
        return 1
    if not target.json:
        left = f"follows the code again{declared_text}"
        echo(f"{name}: {format_override(after) if after else left}")
    return 0


def current_operator() -> str:
    """Returns user@host of the person who runs the command. Overrides and the audit log store this name."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = "unknown"  # in a container the user id may have no name
    return f"{name}@{socket.gethostname()}"
