"""Removing dead rows while there is traffic.

Every claim and every settlement leaves a dead row behind. The server's own autovacuum looks once a minute: at
full speed the table had grown from 30 to 180 MB by then, and claims read all of it. So the worker that leads
this duty looks every few seconds, and vacuums what has enough dead rows to be worth it.
"""

from __future__ import annotations

import asyncio

from tidemill.stores.postgres.connection import Connection
from tidemill.stores.postgres.statements import load, quoted

SQL = load("upkeep")

DEAD, SHARE = 1000, 0.02
"""A table is vacuumed from so many dead rows on, and this share of the living ones."""
REST = 10
"""After a vacuum its table is left alone for so many times as long as it took: at most a tenth of a core."""
LEFT_IN_VAIN = 0.5
"""A vacuum that leaves more than this share of the dead rows was in vain."""
IN_VAIN = 60.0
"""Seconds until the next try, where an open transaction keeps the dead rows from being removed."""
PATIENCE = 300.0


class Tending:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._rests: dict[str, float] = {}

    async def tend(self) -> bool:
        """Answers False: nothing of it is urgent."""
        for table, before in (await self._due()).items():
            loop = asyncio.get_running_loop()
            began = loop.time()
            # Space at the end of a table is soon needed again; one that autovacuum is at is passed over.
            await self._connection.execute_alone(
                f"VACUUM (SKIP_LOCKED, TRUNCATE false, PARALLEL 0) {self._named(table)}", patience=PATIENCE
            )
            ended = loop.time()
            self._rests[table] = ended + REST * (ended - began)
            # At a thousand jobs a second as many rows die during a vacuum: only what it left counts.
            if (await self._dead_rows()).get(table, 0) > before * LEFT_IN_VAIN:
                self._rests[table] = max(self._rests[table], ended + IN_VAIN)
        return False

    async def _due(self) -> dict[str, int]:
        now = asyncio.get_running_loop().time()
        found = await self._dead_rows()
        return {table: dead for table, dead in found.items() if self._rests.get(table, 0) <= now}

    async def _dead_rows(self) -> dict[str, int]:
        """The dead rows of each table that has many."""
        rows = await self._connection.fetch(SQL.dead, self._connection.address.schema, DEAD, SHARE)
        return {row["name"]: row["dead"] for row in rows}

    def _named(self, table: str) -> str:
        return f"{quoted(self._connection.address.schema)}.{quoted(table)}"
