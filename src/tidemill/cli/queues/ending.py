"""When a pause or an override ends by itself: `--until` or `--for`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from tidemill.app import Tidemill
from tidemill.cli import times


@dataclass(frozen=True)
class Ending:
    until: float | None
    lasting: float | None

    async def at(self, app: Tidemill) -> float | None:
        """The wall time, by the store's clock; None when it was left open."""
        if self.lasting is None:
            return self.until
        return (await app.store.read_clock()).wall + self.lasting


def with_ending(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the two options; the command gets them as one `ending`."""

    @click.option(
        "--until", callback=times.moment, metavar="TIME", help="When it ends by itself: 2026-05-01T08:00."
    )
    @click.option(
        "--for",
        "lasting",
        callback=times.duration,
        metavar="DURATION",
        help="How long it lasts: 90s, 10m, 1h30m, 2d.",
    )
    @functools.wraps(command)
    def wrapped(*args: Any, until: float | None, lasting: float | None, **options: Any) -> Any:
        if until is not None and lasting is not None:
            raise click.UsageError("give either --until or --for, not both")
        return command(*args, ending=Ending(until, lasting), **options)

    return wrapped
