"""How long something takes or lasts, as a person typed it."""

from __future__ import annotations

from http import HTTPStatus

from tidemill.seam.refusals import Refused
from tidemill.times import seconds_of
from tidemill.web.asked import Asked


def span_of(typed: str | None, *, field: str) -> float | None:
    """`2h` is 7200 seconds; None when nothing was typed."""
    if not (text := (typed or "").strip()):
        return None
    if (seconds := seconds_of(text)) is None:
        raise Refused(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            f"{field}: must be a duration, such as 90s, 10m, 1h30m or 2d, is {text[:50]!r}",
            field=field,
        )
    return seconds


async def end_of(asked: Asked, lasts: str | None, *, field: str = "lasts") -> float | None:
    """`2h` is two hours from now on the store's clock; nothing is until somebody ends it."""
    seconds = span_of(lasts, field=field)
    if seconds is None:
        return None
    return await store_now(asked) + seconds


async def store_now(asked: Asked) -> float:
    """What the store's own clock on the wall says: everything that is kept goes by it."""
    return (await (await asked.app.client.store()).read_clock()).wall
