"""Until when something holds, from how long a person typed that it should."""

from __future__ import annotations

from http import HTTPStatus

from tidemill.times import seconds_of
from tidemill.web.asked import Asked
from tidemill.web.problems import Refused


async def end_of(asked: Asked, lasts: str | None, *, field: str = "lasts") -> float | None:
    """`2h` is two hours from now on the store's clock; nothing is until somebody ends it."""
    if not (text := (lasts or "").strip()):
        return None
    if (seconds := seconds_of(text)) is None:
        raise Refused(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            f"{field}: must be how long it lasts, such as 90s, 10m, 1h30m or 2d, is {text[:50]!r}",
            field=field,
        )
    store = await asked.app.client.store()
    return (await store.read_clock()).wall + seconds
