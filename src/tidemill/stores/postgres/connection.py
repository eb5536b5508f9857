"""How verbs reach the database: one statement, or one transaction, within a deadline.

A verb ends in time (I22) with an answer or an error. Until then it is tried again, with growing pauses, when
the connection was lost or the server rolled it back. What may have been committed before the answer was lost
is done again only if that changes nothing more: `repeatable` (J1).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import asyncpg

from tidemill.clock import Clock, SystemEntropy
from tidemill.errors import StoreUnavailable
from tidemill.stores.postgres import migrations
from tidemill.stores.postgres.address import Address
from tidemill.stores.postgres.clocks import StoreClock
from tidemill.stores.postgres.faults import TROUBLE, Kind, kind_of, out_of_time, translate
from tidemill.stores.postgres.links import HANDLERS, Link, Links
from tidemill.stores.postgres.statements import moved
from tidemill.stores.postgres.step import Step
from tidemill.stores.postgres.wakeups import Wakeups

T = TypeVar("T")
Record = asyncpg.Record

PATIENCE = 5.0
"""Seconds a verb may take, other tries included (I22)."""

_inherited: list[Any] = []
"""Of a parent process. Never touched and never freed: closing a connection says goodbye in its name."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0


class Connection:
    """`clock` is a test's; without one the server's clock is the truth."""

    def __init__(self, address: Address, clock: Clock | None) -> None:
        self.address = address
        self.clock = StoreClock(clock)
        self._jitter = SystemEntropy().chance  # a test's own numbers are not for this
        self._moved: dict[str, str] = {}
        self._start()

    def _start(self) -> None:
        self.links = Links(self.address)
        self.endings = Links(self.address, HANDLERS)
        """For `ending.transaction`: as many again."""
        self.wakeups = Wakeups(self.address, self.links, self.here, self.fetch)
        self._open = False
        self._pid = os.getpid()

    def mind_fork(self) -> None:
        """What a parent opened is the parent's."""
        if self._pid != os.getpid():
            _inherited.append((self.links, self.endings, self.wakeups))
            self._start()

    async def open(self) -> None:
        """S1: a server that cannot be used is told at once, not after other tries."""
        self.mind_fork()
        async with self._opening():
            await migrations.prepare(self.links, self.address, self.clock)
        self.endings.pooled = self.links.pooled
        self._open = True

    async def is_made(self) -> bool:
        """U9."""
        self.mind_fork()
        async with self._opening():
            return await migrations.is_made(self.links, self.address)

    @asynccontextmanager
    async def _opening(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(migrations.PATIENCE):
                yield
        except TimeoutError as error:
            raise out_of_time(None, self.address) from error
        except TROUBLE as error:
            raise translate(error, self.address) from error

    async def close(self) -> None:
        self.mind_fork()
        await self.wakeups.close()
        self._open = False
        await self.links.close()
        await self.endings.close()

    def announce(self, topics: Iterable[str], ended: Collection[str] = ()) -> None:
        """For statements that were sent by `fetch`: what they changed is to be known."""
        self.wakeups.announce(topics, ended)

    async def fetch(
        self, sql: str, *values: Any, repeatable: bool = True, patience: float = PATIENCE
    ) -> list[Record]:
        """One statement, which is a transaction of its own. Nearly always there is an idle link and nothing
        goes wrong, and every job pays for what is done here."""
        self._refuse_closed()
        statement = self._moved.get(sql) or self.here(sql)
        link = None if self.wakeups.is_parking else self.links.take_idle()
        if link is None:
            return await self._fetch(statement, values, repeatable=repeatable, patience=patience)
        began = asyncio.get_running_loop().time()
        try:
            rows = await link.fetch(statement, *values, timeout=patience)
        except TROUBLE as error:
            self._mind(link, error)
            if not may_repeat(error, repeatable=repeatable):
                raise translate(error, self.address) from error
        except BaseException:
            self.links.drop(link)
            raise
        else:
            self.links.give_back(link)
            return rows
        patience -= asyncio.get_running_loop().time() - began
        return await self._fetch(statement, values, repeatable=repeatable, patience=patience)

    async def _fetch(
        self, statement: str, values: tuple[Any, ...], *, repeatable: bool, patience: float
    ) -> list[Record]:
        async def on(link: Link) -> list[Record]:
            return await link.fetch(statement, *values)

        return await self._until_done(on, repeatable=repeatable, patience=patience)

    async def run(
        self, work: Callable[[Step], Awaitable[T]], *, repeatable: bool = True, patience: float = PATIENCE
    ) -> T:
        """`work` in one transaction. It may be called several times, each time on a new one: whatever it
        remembers of an earlier call is wrong."""

        async def on(link: Link) -> T:
            async with self.step_on(link) as step:
                answer = await work(step)
            self.wakeups.announce(step.topics, step.ended)
            return answer

        return await self._until_done(on, repeatable=repeatable, patience=patience)

    async def execute_alone(self, command: str, *, patience: float) -> None:
        """What may not stand in a transaction, such as VACUUM."""

        async def on(link: Link) -> None:
            await link.execute(command, timeout=patience)

        await self._until_done(on, repeatable=True, patience=patience)

    @asynccontextmanager
    async def step(self, *, patience: float = PATIENCE) -> AsyncIterator[Step]:
        """One transaction that is not tried again: for work that cannot be."""
        try:
            async with asyncio.timeout(patience), self._link() as link, self.step_on(link) as step:
                yield step
            self.wakeups.announce(step.topics, step.ended)
        except TimeoutError as error:
            raise out_of_time(None, self.address) from error
        except TROUBLE as error:
            raise translate(error, self.address) from error

    def step_on(self, link: Link, links: Links | None = None) -> Step:
        """A transaction on a link that somebody else looks after, one of the verbs' or of other `links`."""
        return Step(link, self.clock, self.here, (links or self.links).begin)

    def here(self, sql: str) -> str:
        """The statement as it reads in this store's schema."""
        statement = self._moved.get(sql)
        if statement is None:
            statement = self._moved[sql] = moved(sql, self.address.schema)
        return statement

    async def _until_done(
        self, on: Callable[[Link], Awaitable[T]], *, repeatable: bool, patience: float
    ) -> T:
        self._refuse_closed()
        last: Exception | None = None
        pause = _FIRST_PAUSE
        try:
            async with asyncio.timeout(patience):
                if self.wakeups.is_parking:
                    await self.wakeups.parked()
                while True:
                    try:
                        async with self._link() as link:
                            return await on(link)
                    except TROUBLE as error:
                        if not may_repeat(error, repeatable=repeatable):
                            raise translate(error, self.address) from error
                        last = error
                    await asyncio.sleep(pause * (0.5 + self._jitter()))
                    pause = min(2 * pause, _LONGEST_PAUSE)
        except TimeoutError as error:
            raise out_of_time(last, self.address) from (last or error)

    @asynccontextmanager
    async def _link(self) -> AsyncIterator[Link]:
        """Handed back only by who knows that it is in order."""
        link = await self.links.take()
        try:
            yield link
        except BaseException as error:
            self._mind(link, error)
            raise
        else:
            self.links.give_back(link)

    def _mind(self, link: Link, error: BaseException) -> None:
        """What the server refused leaves a link in order, unless it refuses all writes: after a failover
        another server may have its name. After anything else nobody knows."""
        refused = isinstance(error, asyncpg.PostgresError)
        if refused and not isinstance(error, asyncpg.ReadOnlySQLTransactionError):
            self.links.give_back(link)
        else:
            self.links.drop(link)

    def _refuse_closed(self) -> None:
        self.mind_fork()
        if not self._open:
            raise StoreUnavailable(f"{self.address}: the store is closed; open it first")


def may_repeat(error: BaseException, *, repeatable: bool) -> bool:
    kind = kind_of(error)
    if kind is Kind.LOST:
        return repeatable or not getattr(error, "committing", True)
    return kind is Kind.ROLLED_BACK
