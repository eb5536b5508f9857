"""What is looked at is kept up to date.

A look is one thing that viewers watch: a page as somebody with that role reads it in that language. However
many watch it, it is made once, at most once a second, and only while somebody does. What it costs sets how
often it is made. Each viewer is sent the parts that changed since it was last sent something; one that comes
back and has the newest is sent nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from contextlib import suppress
from html import escape

from tidemill.clock import Clock
from tidemill.errors import TidemillError
from tidemill.seam.answers import Event
from tidemill.web.problems import OURS

Make = Callable[[], Awaitable[dict[str, str]]]

EVERY = 1.0
SHARE = 20
"""A look that took 0.1 s is made every 2 s: a page costs no more than a twentieth of a core."""
QUIET = 15.0
"""A viewer hears something this often: who has gone is noticed, and no proxy gives up."""
LONGEST = 600.0
"""Then a viewer has to come back, through the gate: its session may have ended."""
TROUBLE = "trouble"
STILL_HERE = Event("", "")


class Look:
    """`parts` are named texts, each with the number of the making that changed it last."""

    def __init__(self, make: Make, clock: Clock) -> None:
        self._make, self._clock = make, clock
        self._news = asyncio.Event()
        self._parts: dict[str, tuple[int, str]] = {}
        self._number, self._digest = 0, ""
        self._ended = False
        self.made = 0
        self.viewers = 0

    async def keep(self) -> None:
        while True:
            began = self._clock.boot()
            await self._look()
            took = self._clock.boot() - began
            await asyncio.sleep(max(EVERY - took, SHARE * took))

    def end(self) -> None:
        """Nobody is sent anything more."""
        self._ended = True
        self._news.set()

    async def watch(self, last: str | None) -> AsyncIterator[Event]:
        """`last` is what a viewer who was here before has."""
        began, seen = self._clock.boot(), 0
        while not self._ended and self._clock.boot() - began < LONGEST:
            if not await self._newer_than(seen):
                yield STILL_HERE
                continue
            news, seen = self._since(seen), self._number
            if self._digest != last:
                for name, text in news:
                    yield Event(name, text, id=self._digest)
            last = None

    async def _newer_than(self, seen: int) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(QUIET):
                while self._number <= seen and not self._ended:
                    await self._news.wait()
        return self._number > seen

    def _since(self, seen: int) -> list[tuple[str, str]]:
        return [(name, text) for name, (number, text) in self._parts.items() if number > seen]

    async def _look(self) -> None:
        self.made += 1
        try:
            parts = {**await self._make(), TROUBLE: ""}
        except TidemillError as error:
            parts = {TROUBLE: escape(str(error))}
        except Exception:
            logging.getLogger("tidemill").exception("what is looked at could not be made")
            parts = {TROUBLE: escape(OURS.detail)}
        news = {name: text for name, text in parts.items() if self._parts.get(name, (0, None))[1] != text}
        if not news:
            return
        self._number += 1
        self._parts |= {name: (self._number, text) for name, text in news.items()}
        self._digest = _digest(self._parts)
        told, self._news = self._news, asyncio.Event()
        told.set()


def _digest(parts: Mapping[str, tuple[int, str]]) -> str:
    whole = "\0".join(f"{name}\0{text}" for name, (_, text) in sorted(parts.items()))
    return hashlib.blake2s(whole.encode(), digest_size=8).hexdigest()


class Looks:
    """All that are watched now, by what they are of."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looks: dict[Hashable, tuple[Look, asyncio.Task[None]]] = {}

    async def watch(self, of: Hashable, make: Make, last: str | None = None) -> AsyncIterator[Event]:
        if of not in self._looks:
            look = Look(make, self._clock)
            self._looks[of] = look, asyncio.create_task(look.keep(), name=f"look at {of}")
        look, keeping = self._looks[of]
        look.viewers += 1
        try:
            async for event in look.watch(last):
                yield event
        finally:
            look.viewers -= 1
            if not look.viewers:
                keeping.cancel()
                self._looks.pop(of, None)

    def close(self) -> None:
        for look, keeping in self._looks.values():
            keeping.cancel()
            look.end()

    def __len__(self) -> int:
        return len(self._looks)
