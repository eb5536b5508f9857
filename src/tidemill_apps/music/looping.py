"""What goes on beside the jobs of a worker: looked at again and again, and never the end of anything else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from tidemill import TidemillError
from tidemill_apps.common.database import DatabaseUnavailable

log = structlog.get_logger("tidemill_apps.music")


async def every(
    seconds: float, look: Callable[[], Awaitable[None]], failing: str, woken: asyncio.Event | None = None
) -> None:
    """Until it is cancelled; sooner when `woken` is set. A store or database that is away is told once, and
    tried again."""
    said = ""
    while True:
        try:
            await look()
            said = ""
        except (TidemillError, DatabaseUnavailable) as error:
            if str(error) != said:
                log.warning(failing, error=str(error))
            said = str(error)
        await _sleep(seconds, woken)


async def _sleep(seconds: float, woken: asyncio.Event | None) -> None:
    if woken is None:
        await asyncio.sleep(seconds)
        return
    with suppress(TimeoutError):
        await asyncio.wait_for(woken.wait(), seconds)
    woken.clear()
