"""Open streams: so many and no more. Each ends with its source, with the server, and when its viewer may no
longer look."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from enum import StrEnum
from http import HTTPStatus
from weakref import WeakSet

from tidemill.clock import Clock
from tidemill.errors import TidemillError
from tidemill.seam.answers import Event
from tidemill.seam.refusals import Refused

LOOK_AGAIN = 1.0
"""Seconds after which a stream asks whether its viewer may still look, also when it has nothing to tell: a
token that is revoked ends its streams within two seconds."""
RETRY_AFTER = 30
"""Seconds in the Retry-After header for a viewer with too many streams."""
OF_ONE, OF_ALL = 50, 500
"""Streams of one viewer, and of all: each is a file of the process, which often may have 1024."""

MayLook = Callable[[], Awaitable[bool]]


class Why(StrEnum):
    OVER = "over"
    CLOSED = "closed"
    UNADMITTED = "unadmitted"
    FAILED = "failed"


class Streams:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: WeakSet[Stream] = WeakSet()  # one that nobody reads, since they have gone, is none
        self._closed = False

    def follow(
        self, source: AsyncIterator[Event], may_look: MayLook, viewer: str, every: float | None = None
    ) -> Stream:
        """`every`: seconds between two checks whether the viewer may still look."""
        self._refuse_more(viewer)
        stream = Stream(source, may_look, self._clock, viewer, LOOK_AGAIN if every is None else every)
        self._open.add(stream)
        if self._closed:
            stream.end(Why.CLOSED)
        return stream

    def close(self) -> None:
        """Those that begin later end at once: who came just before the server stopped listening."""
        self._closed = True
        for stream in [*self._open]:
            stream.end(Why.CLOSED)

    def _refuse_more(self, viewer: str) -> None:
        there = [stream.viewer for stream in self._open if not stream.ended]
        if there.count(viewer) >= OF_ONE:
            status, whose = HTTPStatus.TOO_MANY_REQUESTS, f"{OF_ONE} streams of yours"
        elif len(there) >= OF_ALL:
            status, whose = HTTPStatus.SERVICE_UNAVAILABLE, f"{OF_ALL} streams"
        else:
            return
        raise Refused(
            status,
            f"{whose} are open, and more are not served; end one, or ask again later",
            headers={"retry-after": str(RETRY_AFTER)},
        )


class Stream:
    """The source is read in one task from beginning to end, two events ahead of the viewer and no more: who
    reads slowly makes it wait. `why` is why the stream ended."""

    def __init__(
        self, source: AsyncIterator[Event], may_look: MayLook, clock: Clock, viewer: str, every: float
    ) -> None:
        self._source, self._may_look, self._clock, self.viewer = source, may_look, clock, viewer
        self._every = every
        self._came: asyncio.Queue[Event | None] = asyncio.Queue(1)
        self.why = Why.OVER
        self.ended = False

    def end(self, why: Why) -> None:
        """What was not yet sent is not sent any more."""
        self.why = why
        with suppress(asyncio.QueueEmpty):
            self._came.get_nowait()
        self._came.put_nowait(None)

    async def __aiter__(self) -> AsyncGenerator[Event]:
        reading = asyncio.create_task(self._read(), name="a stream that somebody follows")
        try:
            async for event in self._admitted():
                yield event
        finally:
            self.ended = True
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _admitted(self) -> AsyncIterator[Event]:
        seen = self._clock.boot()
        while self.why is Why.OVER:
            event = await self._next(seen + self._every - self._clock.boot())
            if self._clock.boot() - seen >= self._every:
                seen = self._clock.boot()
                if not await self._still_admitted():
                    return
            if event is None:
                return
            if event is not _NOTHING:
                yield event

    async def _still_admitted(self) -> bool:
        try:
            if await self._may_look():
                return True
        except Exception as error:  # noqa: BLE001 - nobody looks on while it cannot be known that they may
            _log(error)
            self.end(Why.FAILED)
        else:
            self.end(Why.UNADMITTED)
        return False

    async def _next(self, within: float) -> Event | None:
        """None when there are no more."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                return await self._came.get()
        return _NOTHING

    async def _read(self) -> None:
        """What came before a failure is sent before it."""
        why = Why.OVER
        try:
            async for event in self._source:
                await self._came.put(event)
        except Exception as error:  # noqa: BLE001 - whatever it is, the stream ends by it
            _log(error)
            why = Why.FAILED
        finally:
            if isinstance(self._source, AsyncGenerator):
                await self._source.aclose()
        await self._came.put(None)
        if self.why is Why.OVER:
            self.why = why


def _log(error: Exception) -> None:
    """A store that is away ends every stream: a line of each is enough."""
    known = isinstance(error, TidemillError)
    logging.getLogger("tidemill").error(
        "a stream could not go on: %s", error, exc_info=None if known else error
    )


_NOTHING = Event("", "")
