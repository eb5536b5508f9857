"""Leases of claims and of leadership: implements extend, reclaim, lead and resign. A reboot ends all
leases."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.contract.coordination import Leadership
from tidemill.contract.jobs import ExtendResult, ReclaimResult
from tidemill.core.claims import Heartbeat
from tidemill.core.documents import ADVANCED_KINDS
from tidemill.core.ledger import AccountKey
from tidemill.engine import leases as engine
from tidemill.engine import read_sets
from tidemill.engine.records import Records
from tidemill.stores.postgres.engine_runner import SQL as LOAD_SQL
from tidemill.stores.postgres.engine_runner import PostgresEngineRunner
from tidemill.stores.postgres.load_jobs import MAX_OVERDUE_JOBS
from tidemill.stores.postgres.pools import account_key
from tidemill.stores.postgres.rows import json_text, text_array
from tidemill.stores.postgres.statements import load_statements
from tidemill.stores.postgres.transaction import PostgresTransaction

FAST_PATH_SQL = load_statements("fast_path")


async def extend(runner: PostgresEngineRunner, heartbeat: Heartbeat) -> ExtendResult:
    held = heartbeat.held
    if len({held_job.job for held_job in held}) == len(held):
        entries = [(held_job.job, line) for held_job in held for line in held_job.log]
        (row,) = await runner.connection.fetch(
            FAST_PATH_SQL.extend,
            *runner.connection.clock.arguments(),
            heartbeat.worker,
            heartbeat.received,
            heartbeat.lease,
            heartbeat.host,
            heartbeat.pid,
            json_text(heartbeat.queues),
            heartbeat.concurrency,
            [held_job.job for held_job in held],
            text_array(held_job.fence for held_job in held),
            text_array(held_job.claim for held_job in held),
            text_array(held_job.renew for held_job in held),
            text_array(held_job.progress for held_job in held),
            [held_job.note for held_job in held],
            [job for job, _ in entries],
            text_array(line.age for _, line in entries),
            [line.line for _, line in entries],
            repeatable=not entries,
        )
        runner.connection.clock.update(row["wall"], row["boot"], row["epoch"])
        if row["plain"]:
            return ExtendResult(
                tuple(
                    held_job.job
                    for held_job, current in zip(held, row["current"], strict=True)
                    if current != "true"
                )
            )
    return await runner.run(read_sets.extend(heartbeat), lambda records: engine.extend(records, heartbeat))


LEADERSHIP_SQL = load_statements("leadership")
_LEAD = LEADERSHIP_SQL.lead.format(
    **{f"{kind}_due": LEADERSHIP_SQL.due.format(kind=kind) for kind in ADVANCED_KINDS}
)


async def lead(runner: PostgresEngineRunner, duties: Sequence[str], worker: str, lease: float) -> Leadership:
    """Makes a worker the leader of each duty (kind of maintenance) that no other worker leads, for `lease`
    seconds (C1). Renews the duties that the worker leads already. The result also says which work waits
    (C3)."""
    clock = runner.connection.clock
    (row,) = await runner.connection.fetch(_LEAD, *clock.arguments(), list(duties), worker, lease)
    won = set(row["won"])
    return Leadership(
        leads=tuple(duty for duty in duties if duty in won),
        free_in=None if row["free_at"] is None else max(0.0, row["free_at"] - row["boot"]),
        clock=clock.update(row["wall"], row["boot"], row["epoch"]),
        arrivals=row["arrivals"],
        dues={kind: row[f"{kind}_due"] for kind in ADVANCED_KINDS},
    )


async def resign(runner: PostgresEngineRunner, duties: Sequence[str], worker: str) -> None:
    """Gives up the leadership of `duties`, so that another worker can lead at once (C2). Duties of other
    workers stay unchanged."""
    await runner.connection.fetch(LEADERSHIP_SQL.resign, list(duties), worker)


async def reclaim(runner: PostgresEngineRunner, dead: Sequence[str]) -> ReclaimResult:
    if not dead:
        clock = runner.connection.clock
        (row,) = await runner.connection.fetch(LEADERSHIP_SQL.has_expired_lease, *clock.arguments())
        clock.update(row["wall"], row["boot"], row["epoch"])
        if not row["has_expired"]:
            return ReclaimResult((), ())
    ready: list[str] = []
    poison: list[str] = []
    while True:
        found = await runner.run(read_sets.reclaim(dead), lambda records: engine.reclaim(records, dead))
        ready += found.ready
        poison += found.poison
        if len(found.ready) + len(found.poison) < MAX_OVERDUE_JOBS:
            return ReclaimResult(tuple(ready), tuple(poison))


BOOT_SQL = load_statements("last_boot")


async def end_previous_boot(runner: PostgresEngineRunner) -> None:
    """Ends all leases if the boot id has changed since the store was last opened (J63). Only a test's clock
    can change the boot id."""
    boot_id = runner.connection.clock.boot_id
    known = await runner.connection.fetch(BOOT_SQL.last)
    if known and known[0]["boot_id"] == boot_id:
        return

    async def work(transaction: PostgresTransaction) -> None:
        await transaction.fetch(LOAD_SQL.begin, *transaction.clock.arguments())
        last = await transaction.value(BOOT_SQL.last)
        if last is None:
            await transaction.fetch(BOOT_SQL.first, boot_id)
        elif last != boot_id:
            await transaction.fetch(BOOT_SQL.next, boot_id)
            await _end_leases(runner, transaction)

    await runner.connection.run(work)


REBOOT_STATEMENTS = (
    BOOT_SQL.end_leases,
    BOOT_SQL.end_claims,
    BOOT_SQL.end_workers,
    BOOT_SQL.end_leaders,
    BOOT_SQL.end_abandoned_units,
    BOOT_SQL.open_lanes,
    BOOT_SQL.open_blocks,
)


async def _end_leases(runner: PostgresEngineRunner, transaction: PostgresTransaction) -> None:
    for statement in REBOOT_STATEMENTS:
        await transaction.fetch(statement)
    accounts = [account_key(pool, key) for pool, key in await transaction.fetch(BOOT_SQL.accounts)]
    if accounts:
        pools = {pool for pool, _ in accounts}
        await runner.run_in(
            transaction, read_sets.pools(pools), lambda records: _reload_accounts(records, accounts)
        )


def _reload_accounts(records: Records, accounts: list[AccountKey]) -> None:
    """Loads the accounts and saves them again. Loading removes the values that a reboot has made invalid."""
    for account in accounts:
        if known := records.pool_ledger.load(account):
            records.pool_ledger.save(account, known[1])
