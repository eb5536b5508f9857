"""One transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

import asyncpg

from tidemill.contract.jobs import Reading
from tidemill.stores.postgres.clocks import StoreClock
from tidemill.stores.postgres.faults import TROUBLE
from tidemill.stores.postgres.links import Link
from tidemill.stores.postgres.statements import load

SQL = load("clock")


class Step:
    """READ COMMITTED: rows that a decision rests on are locked when they are read. `begin` is how one
    begins on such a link."""

    def __init__(self, link: Link, clock: StoreClock, here: Callable[[str], str], begin: str) -> None:
        self.link = link
        self.clock = clock
        self.topics: set[str] = set()
        """Who is to be woken when this is committed."""
        self.ended: list[str] = []
        """Jobs that end with this."""
        self.decided = 0.0
        """When this had its turn, or earlier, by our own clock."""
        self._here, self._begin = here, begin
        self._reading: Reading | None = None

    async def fetch(self, sql: str, *values: Any) -> list[asyncpg.Record]:
        return await self.link.fetch(self._here(sql), *values)

    async def first(self, sql: str, *values: Any) -> asyncpg.Record | None:
        """The first row."""
        return await self.link.fetchrow(self._here(sql), *values)

    async def value(self, sql: str, *values: Any) -> Any:
        """The first column of the first row."""
        return await self.link.fetchval(self._here(sql), *values)

    async def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """One statement for each of the rows, sent together."""
        await self.link.executemany(self._here(sql), rows)

    async def time(self) -> Reading:
        """The store's clocks as this transaction read them first."""
        if self._reading is None:
            self._reading = self.clock.given() or self.clock.heard(*await self._ask())
        return self._reading

    async def _ask(self) -> tuple[float, float, int]:
        row = await self.first(SQL.read_clock, *self.clock.asked())
        assert row is not None  # noqa: S101 - a function call has one row
        return row["wall"], row["boot"], row["epoch"]

    async def __aenter__(self) -> Self:
        try:
            await self.link.execute(self._begin)
        except TROUBLE as error:
            raise _before_commit(error) from None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.link.execute("COMMIT")
            return
        _before_commit(error)
        if isinstance(error, Exception) and not self.link.is_closed():
            await self._roll_back()

    async def _roll_back(self) -> None:
        try:
            await self.link.execute("ROLLBACK")
        except TROUBLE:
            self.link.terminate()  # what it was doing is over when the server notices


def _before_commit(error: BaseException) -> BaseException:
    """Marks what failed before anything could be committed: it may be done again, whatever it is."""
    error.committing = False  # type: ignore[attr-defined]
    return error
