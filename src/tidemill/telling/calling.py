"""Calls that may take long, each in a thread of its own.

Not in the loop's own threads: a few receivers that do not answer would take all of them, stores and pages
read in them, and they hold up the exit of the process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def called(call: Callable[[], T]) -> T:
    """What it answers or raises. Who stops waiting leaves it to end by itself."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            told = answer.set_result, call()
        except BaseException as error:  # noqa: BLE001 - carried to the loop, whatever it is
            told = answer.set_exception, error  # type: ignore[assignment]
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(_tell, answer, *told)

    threading.Thread(target=run, daemon=True, name="tidemill-call").start()
    return await answer


def _tell(answer: asyncio.Future[Any], tell: Callable[[Any], None], what: Any) -> None:
    if not answer.done():
        tell(what)
