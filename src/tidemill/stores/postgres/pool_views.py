"""Every pool as people see it."""

from __future__ import annotations

from tidemill.clock import Entropy
from tidemill.contract.pools import PoolMinute, PoolView
from tidemill.engine import pools as engine
from tidemill.engine.records import Records
from tidemill.engine.wants import Numbers
from tidemill.engine.workspace import StoppedClock
from tidemill.stores.postgres.commit_books import remark_of
from tidemill.stores.postgres.connection import Connection
from tidemill.stores.postgres.look_books import account_of, place_of, pool_of
from tidemill.stores.postgres.statements import load
from tidemill.stores.postgres.step import Step

SQL = load("reader")


async def every(connection: Connection, entropy: Entropy) -> list[PoolView]:
    """P7, as of one instant."""

    async def read(step: Step) -> list[PoolView]:
        return engine.pools(await books_of(step, entropy))

    return await connection.run(read)


async def books_of(step: Step, entropy: Entropy) -> Records:
    """Records with everything that is known of pools, and nothing else."""
    time = await step.time()
    clock = StoppedClock(Numbers(time.wall, time.boot, step.clock.boot_id, 0, 0, 0))
    records = Records(clock, entropy)
    books = records.books
    for name, *texts in await step.fetch(SQL.pools):
        books.pools[name] = pool_of(*texts)
    for pool, key, account in await step.fetch(SQL.accounts):
        books.accounts[place_of(pool, key)] = account_of(account)
    for pool, key, count in await step.fetch(SQL.open_reservations):
        books.count_open(place_of(pool, key), count)
    return records


async def history(connection: Connection, pool: str, since: float) -> list[PoolMinute]:
    """P8."""
    found: list[PoolMinute] = []
    for minute, *row in await connection.fetch(SQL.pool_history, pool, since // 60 * 60):
        what = remark_of(*row)
        found.append(PoolMinute(at=minute, calls=what.calls, units=what.units, refusals=what.refusals))
    return found
