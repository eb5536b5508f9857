"""Leases of claims and of leadership: the store methods extend, reclaim, lead and resign. A restart of the
machine ends all leases."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tidemill.contract.coordination import Leadership
from tidemill.contract.jobs import ClockReading, ExtendResult, ReclaimResult
from tidemill.core.claims import Heartbeat, HeldJob
from tidemill.core.documents import ADVANCED_KINDS
from tidemill.core.ledger import AccountKey
from tidemill.engine import leases as engine
from tidemill.engine import read_sets
from tidemill.engine.records import Records
from tidemill.stores.redis import keys, scripts
from tidemill.stores.redis.engine_runner import RedisEngineRunner
from tidemill.stores.redis.job_codec import encode
from tidemill.stores.redis.keys import token
from tidemill.stores.redis.protocol import CommandArgument
from tidemill.stores.redis.rows import WorkerJson
from tidemill.stores.redis.shard import Shard

EXTEND = scripts.load_script("extend")
NEEDS_ENGINE = b"engine"
MAX_JOBS_PER_HEARTBEAT = 1000
"""Jobs per call of `lua/extend.lua`, which has the same limit."""


async def extend(runner: RedisEngineRunner, heartbeat: Heartbeat) -> ExtendResult:
    lost = None if any(map(_has_report, heartbeat.held)) else await _extend_by_script(runner, heartbeat)
    if lost is not None:
        return ExtendResult(tuple(lost))
    return await runner.run(read_sets.extend(heartbeat), lambda records: engine.extend(records, heartbeat))


async def _extend_by_script(runner: RedisEngineRunner, heartbeat: Heartbeat) -> list[str] | None:
    """Extends leases on the fast path. Returns the ids of lost jobs; None if the engine has to extend the
    leases."""
    seen = 0
    lost: list[str] = []
    while True:
        is_last = len(heartbeat.held) - seen <= MAX_JOBS_PER_HEARTBEAT
        before = {held.job for held in heartbeat.held[:seen]}.difference(lost) if is_last else ()
        words = _heartbeat_arguments(heartbeat, seen)
        reply = await runner.shard.run(EXTEND, *words, *before, repeatable=True)
        if reply == NEEDS_ENGINE:
            return None
        seen += reply[0]
        lost += [id_.decode() for id_ in reply[1:]]
        if seen == len(heartbeat.held):
            return lost


def _has_report(held: HeldJob) -> bool:
    return held.progress is not None or held.note is not None or bool(held.log)


def _heartbeat_arguments(heartbeat: Heartbeat, seen: int) -> list[CommandArgument]:
    """Returns the script's arguments for up to 1000 jobs of the heartbeat, skipping the first `seen` jobs."""
    known = WorkerJson(
        host=heartbeat.host, pid=heartbeat.pid, queues=heartbeat.queues, concurrency=heartbeat.concurrency
    )
    words: list[CommandArgument] = [
        heartbeat.worker,
        heartbeat.received,
        heartbeat.lease,
        encode(known),
        len(heartbeat.held) - seen,
    ]
    for held in heartbeat.held[seen : seen + MAX_JOBS_PER_HEARTBEAT]:
        words += (held.job, token(held.fence, held.claim), 1 if held.renew else 0)
    return words


async def reclaim(runner: RedisEngineRunner, dead: Sequence[str]) -> ReclaimResult:
    ready: list[str] = []
    poison: list[str] = []
    while True:
        found = await runner.run(read_sets.reclaim(dead), lambda records: engine.reclaim(records, dead))
        ready += found.ready
        poison += found.poison
        if not found.ready and not found.poison:
            return ReclaimResult(tuple(ready), tuple(poison))


LEAD, RESIGN = scripts.load_script("lead"), scripts.load_script("resign")


async def lead(shard: Shard, duties: Sequence[str], worker: str, lease: float) -> Leadership:
    """Makes `worker` leader of all free `duties` (kinds of maintenance) for `lease` seconds (C1, C3)."""
    answer = await shard.run(LEAD, worker, lease, *duties, repeatable=True)
    wall, boot, arrivals, flow, schedule, *left = answer
    others = [float(seconds) for seconds in left if seconds]
    return Leadership(
        leads=tuple(duty for duty, seconds in zip(duties, left, strict=True) if not seconds),
        free_in=min(others, default=None),
        clock=ClockReading(float(wall), float(boot)),
        arrivals=bool(arrivals),
        dues={
            kind: float(due) if due else None
            for kind, due in zip(ADVANCED_KINDS, (flow, schedule), strict=True)
        },
    )


async def resign(shard: Shard, duties: Sequence[str], worker: str) -> None:
    """Gives up the leadership of `duties`, so that another worker can lead at once (C2). Duties of
    other workers stay unchanged."""
    await shard.run(RESIGN, worker, *duties, repeatable=True)


END_PREVIOUS_BOOT = scripts.load_script("end_previous_boot")


async def end_previous_boot(runner: RedisEngineRunner) -> None:
    if not await runner.shard.run(END_PREVIOUS_BOOT, repeatable=True):
        return
    shard = runner.shard
    names = [name.decode() for name in await shard.ask("HKEYS", shard.key(keys.POOLS))]
    for name in names:
        found = await shard.ask("HKEYS", shard.key(keys.accounts(name)))
        accounts = [(name, key.decode() or None) for key in found]
        if accounts:
            await runner.run(read_sets.pools([name]), partial(_reload_accounts, accounts))


def _reload_accounts(accounts: list[AccountKey], records: Records) -> None:
    """Loads the accounts and saves them again. Loading removes the values that a reboot has made invalid."""
    for account in accounts:
        if known := records.pool_ledger.load(account):
            records.pool_ledger.save(account, known[1])
