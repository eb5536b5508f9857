"""The few server connections of one event loop.

asyncpg's own pool asks the server to reset a session each time one is handed back: a second round trip for
every verb, and nothing here leaves anything behind in a session (which is also what makes it work behind a
pooler). So links are kept in a list: the one used last is taken first, another is opened when all are busy.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

import asyncpg

from tidemill.stores.postgres.address import Address
from tidemill.stores.sockets import open_socket

Link: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

CONNECT_PATIENCE = 5.0
UNUSED = 60.0
"""Seconds after which a link that nobody needed is closed: a rush is over at some time."""
VERBS = {
    "jit": "off",  # compiling takes longer than any statement here
    "enable_seqscan": "off",  # a table that was empty when it was analysed would be read whole for ever
    "default_transaction_isolation": "read committed",  # else who waited for a lock reads what was before
    "standard_conforming_strings": "on",
    "statement_timeout": "0",  # a verb has a deadline of its own, and a VACUUM takes as long as it takes
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "3s",
}
"""What a session is set to where it is ours alone; behind a pooler every transaction says it itself. The
server ends a transaction that is left alone, and with it the locks in it: a process that was stopped inside a
verb must not keep others waiting beyond their deadline."""
HANDLERS = {"idle_in_transaction_session_timeout": "10s"}
"""Where a handler's own statements run, the server plans and waits as it is set up to."""


class FallbackLoop:
    """The event loop as asyncpg uses it, except that `create_connection` tries all addresses of a name.

    asyncpg takes no socket that is already connected, and uvloop tries one address after the other without
    a limit of time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    async def create_connection(
        self, factory: Callable[[], Any], host: str, port: int, *, ssl: Any = None
    ) -> tuple[Any, Any]:
        return await self._loop.create_connection(
            factory, sock=await open_socket(host, port), ssl=ssl, server_hostname=host if ssl else None
        )


class Links:
    def __init__(self, address: Address, session: Mapping[str, str] = VERBS) -> None:
        self._address = address
        self.session = dict(session)
        self.pooled = False
        """A pooler stands between: sessions are not ours, so nothing is prepared in them."""
        self._idle: list[tuple[Link, float]] = []
        self._all: set[Link] = set()
        self._opening = 0
        self._left: set[asyncio.Task[Link]] = set()
        """Being opened for those who have gone away since."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def begin(self) -> str:
        """How a transaction begins."""
        begin = "BEGIN ISOLATION LEVEL READ COMMITTED"
        if not self.pooled:
            return begin
        return "; ".join([begin, *(f"SET LOCAL {name} = '{value}'" for name, value in self.session.items())])

    def take_idle(self) -> Link | None:
        """A link that was alive when it was last seen, if one is free."""
        while self._idle:
            link, _ = self._idle.pop()
            if not link.is_closed():
                return link
            self._all.discard(link)
        return None

    async def take(self) -> Link:
        while True:
            if (link := self.take_idle()) is not None:
                return link
            if len(self._all) + self._opening < self._address.connections:
                return await self._open()
            await self._wait_for_one()

    def give_back(self, link: Link) -> None:
        if link.is_closed() or link.is_in_transaction():
            self.drop(link)
            return
        now = asyncio.get_running_loop().time()
        self._idle.append((link, now))
        if now - self._idle[0][1] > UNUSED:
            self.drop(self._idle.pop(0)[0])
        self._call_next()

    def drop(self, link: Link) -> None:
        """Nobody knows what state it is in."""
        self._all.discard(link)
        terminate(link)
        self._call_next()

    async def close(self) -> None:
        """S2: what is under way may finish, within a verb's time."""
        loop = asyncio.get_running_loop()
        end = loop.time() + CONNECT_PATIENCE
        while len(self._idle) < len(self._all) and loop.time() < end:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(end):
                    await self._wait_for_one()
        every, self._idle, self._all = self._all, [], set()
        for link in every:
            await hang_up(link)
        if self._left:
            await asyncio.wait(self._left)

    async def connect(self) -> Link:
        """One that is not counted: for whoever needs one of its own."""
        try:
            return await asyncpg.connect(
                self._address.dsn,
                loop=cast("asyncio.AbstractEventLoop", FallbackLoop(asyncio.get_running_loop())),
                timeout=CONNECT_PATIENCE,
                server_settings={"application_name": "tidemill"} | ({} if self.pooled else self.session),
                statement_cache_size=0 if self.pooled else 200,
                max_cached_statement_lifetime=0,
            )
        except TimeoutError as error:
            raise ConnectionError(f"nobody greeted within {CONNECT_PATIENCE:g} s") from error

    async def _open(self) -> Link:
        """To the end, even if whoever wants it goes away: asyncpg would leave a future behind that it has not
        looked at, and asyncio complains of it."""
        self._opening += 1
        opening = asyncio.create_task(self.connect())
        try:
            link = await asyncio.shield(opening)
        except asyncio.CancelledError:
            self._left.add(opening)
            opening.add_done_callback(self._forget)
            raise
        finally:
            self._opening -= 1
            self._call_next()
        self._all.add(link)
        return link

    def _forget(self, opened: asyncio.Task[Link]) -> None:
        self._left.discard(opened)
        if not opened.cancelled() and opened.exception() is None:
            terminate(opened.result())

    async def _wait_for_one(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._call_next()  # the turn was ours and is not used
            raise

    def _call_next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return


def terminate(link: Link) -> None:
    with contextlib.suppress(Exception):
        link.terminate()


async def hang_up(link: Link) -> None:
    """Politely, when there is somebody to say goodbye to."""
    try:
        await link.close(timeout=1)
    except Exception:  # noqa: BLE001 - whatever it is, the link ends here
        terminate(link)
