"""The connection on which a handle is notified.

It is opened when the first listener waits and kept. When it is lost it is opened again, and whoever waits is
rung as a precaution: what was missed meanwhile is found by looking.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable

from tidemill.stores.postgres.columns import words
from tidemill.stores.postgres.faults import TROUBLE
from tidemill.stores.postgres.links import Link, Links, hang_up, terminate
from tidemill.stores.postgres.statements import load

SQL = load("wakeups")

SILENCE, ANSWER = 30.0, 5.0
"""Seconds after which it is asked whether anybody is still there, and for the answer: a connection that a
network has forgotten looks like one on which nothing happens."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0


class Ear:
    """`heard` is told arming and topic of a ring; `reopened`, that some may have been missed."""

    def __init__(
        self,
        links: Links,
        here: Callable[[str], str],
        heard: Callable[[int, str], None],
        reopened: Callable[[], None],
    ) -> None:
        self._links, self._here = links, here
        self._heard, self._reopened = heard, reopened
        self._parking: dict[int, tuple[str, ...]] = {}
        self._under_way: dict[int, tuple[str, ...]] = {}
        self._leaving: list[int] = []
        self._something = asyncio.Event()
        self._written: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self.pid = 0
        """The server's process behind the connection."""

    @property
    def is_writing(self) -> bool:
        """Somebody armed, and the server does not know it yet."""
        return self._written is not None

    def is_unwritten(self, arming: int) -> bool:
        return arming in self._parking or arming in self._under_way

    def park(self, arming: int, topics: tuple[str, ...]) -> None:
        self._parking[arming] = topics
        if self._written is None:
            self._written = asyncio.get_running_loop().create_future()
        self._something.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._listen())

    def leave(self, arming: int) -> None:
        if self._parking.pop(arming, None) is None:
            self._leaving.append(arming)
            self._something.set()

    async def written(self, patience: float) -> None:
        """Until the server knows whoever armed before; not for ever, these are hints."""
        if self._written is not None:
            await asyncio.wait([self._written], timeout=patience)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        self._all_written()

    async def _listen(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                link = await self._open()
            except TROUBLE:
                self._all_written()
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            pause = _FIRST_PAUSE
            try:
                await self._serve(link)
            except TROUBLE:
                terminate(link)
            except BaseException:
                await hang_up(link)
                raise
            self._all_written()
            self._reopened()

    async def _open(self) -> Link:
        link = await self._links.connect()
        try:
            await link.add_listener(f"tidemill_{link.get_server_pid()}", self._notified)
            link.add_termination_listener(lambda _: self._something.set())
            await link.fetch(self._here(SQL.listen))
            self.pid = link.get_server_pid()
        except BaseException:
            terminate(link)
            raise
        return link

    async def _serve(self, link: Link) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SILENCE):
                    await self._something.wait()
            if not self._something.is_set():
                await link.fetch("SELECT", timeout=ANSWER)
            self._something.clear()
            if link.is_closed():
                raise ConnectionResetError
            leaving, self._leaving = self._leaving, []
            if leaving:
                await link.fetch(self._here(SQL.leave), words(leaving))
            self._under_way, self._parking = self._parking, {}
            if self._under_way:
                await link.fetch(self._here(SQL.park), *_columns(self._under_way.items()))
            if not self._parking:
                self._all_written()

    def _all_written(self) -> None:
        self._under_way = {}
        written, self._written = self._written, None
        if written is not None and not written.done():
            written.set_result(None)

    def _notified(self, *news: object) -> None:
        """Of asyncpg's four words the last one is what was sent."""
        arming, _, topic = str(news[-1]).partition(" ")
        self._heard(int(arming), topic)


def _columns(parking: Iterable[tuple[int, tuple[str, ...]]]) -> tuple[list[str], list[str | None]]:
    rows = [(topic, arming) for arming, topics in parking for topic in topics]
    return [topic for topic, _ in rows], words(arming for _, arming in rows)
