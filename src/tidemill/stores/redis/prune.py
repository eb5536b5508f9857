"""The store method `prune`: deletes ended jobs and documents by their retention, and cancels expired jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from tidemill.contract import jobs as contract
from tidemill.contract.jobs import PruneResult
from tidemill.contract.reader import HISTORY_SECONDS
from tidemill.core import pool_statistics, transitions
from tidemill.core.documents import Document, DocumentKind, remembered_id
from tidemill.core.ledger import AccountKey
from tidemill.core.queues import HOUR_SECONDS
from tidemill.core.states import FINAL, PENDING
from tidemill.engine import queries, read_sets
from tidemill.engine.advance import forget_document
from tidemill.engine.read_sets import ReadSet
from tidemill.engine.records import Records, move_job
from tidemill.stores.redis import keys, scripts
from tidemill.stores.redis.engine_runner import RedisEngineRunner
from tidemill.stores.redis.job_codec import split_member
from tidemill.stores.redis.protocol import CommandArgument
from tidemill.stores.redis.queues import queues
from tidemill.stores.redis.shard import MAX_JOBS_PER_SCRIPT, Shard, count_fitting

MAX_JOBS_PER_PRUNE = 100
"""Jobs of a flow deleted by one transaction."""


async def prune_documents(runner: RedisEngineRunner, limit: int, wall: float) -> int:
    """Deletes expired documents, and the ended jobs of expired flows (F4). A flow with a live job stays
    (J83). Returns the number of deleted jobs and documents, at most `limit`. `wall`: the current wall
    time."""
    shard, deleted, held = runner.shard, 0, 0
    while deleted < limit:
        query = (shard.key(keys.DOCUMENT_EXPIRY), "-inf", wall, "LIMIT", held, MAX_JOBS_PER_PRUNE)
        expired_members = await shard.ask("ZRANGEBYSCORE", *query)
        for name in expired_members:
            if deleted < limit:
                count, is_held = await _prune_document(
                    runner, *keys.parse_document(name.decode()), limit - deleted
                )
                deleted, held = deleted + count, held + (is_held or not count)
        if len(expired_members) < MAX_JOBS_PER_PRUNE:
            break
    return deleted


async def _prune_document(
    runner: RedisEngineRunner, kind: DocumentKind, id_: str, limit: int
) -> tuple[int, bool]:
    """Deletes one expired document; the ended jobs of a flow come first. Returns the number of deleted jobs
    and documents, and True if the flow stays because of a live job."""
    deleted, live = await _delete_flow_jobs(runner, id_, limit) if kind is DocumentKind.FLOW else (0, 0)
    if live or deleted == limit:
        return deleted, bool(live)
    plan = ReadSet((queries.DocumentById(kind, id_), queries.KnownIdByRequest(remembered_id(kind, id_))))
    return deleted + await runner.run(plan, lambda records: _delete_document(records, kind, id_)), False


async def _delete_flow_jobs(runner: RedisEngineRunner, flow: str, limit: int) -> tuple[int, int]:
    """Deletes up to `limit` ended jobs of a flow. Returns the numbers of deleted and of live jobs found."""
    shard, deleted, live = runner.shard, 0, 0
    while deleted < limit:
        some = await shard.ask("ZRANGE", shard.key(keys.flow_jobs(flow)), live, live + MAX_JOBS_PER_PRUNE - 1)
        ids = [split_member(member)[1] for member in some]
        states = await shard.ask("HMGET", shard.key(keys.flow_job_states(flow)), *ids) if ids else []
        ended = [id_ for id_, letter in zip(ids, states, strict=True) if letter]
        live += len(ids) - len(ended)
        if ended:
            count = await _delete_jobs(runner, flow, ended[: limit - deleted])
            deleted, live = deleted + count, live + (not count)
        if len(ids) < MAX_JOBS_PER_PRUNE:
            break
    return deleted, live


async def _delete_jobs(runner: RedisEngineRunner, flow: str, ids: Sequence[str]) -> int:
    deleted = 0
    while ids:
        count = await count_fitting(runner.shard, ids)
        some, ids = ids[:count], ids[count:]
        jobs = read_sets.change_jobs(some)
        plan = ReadSet((queries.DocumentById(DocumentKind.FLOW, flow), *jobs.first), jobs.follow)
        deleted += await runner.run(plan, partial(_delete_in_engine, flow=flow, ids=some))
    return deleted


def _delete_in_engine(records: Records, flow: str, ids: Sequence[str]) -> int:
    if _is_expired_document(records, DocumentKind.FLOW, flow) is None:
        return 0
    ended = [job for job in map(records.jobs.get, ids) if job is not None and job.state in FINAL]
    for job in ended:
        records.drop(job)
    return len(ended)


def _delete_document(records: Records, kind: DocumentKind, id_: str) -> int:
    document = _is_expired_document(records, kind, id_)
    if document is None:
        return 0
    forget_document(records, document)
    return 1


def _is_expired_document(records: Records, kind: DocumentKind, id_: str) -> Document | None:
    """Returns the document if it is still expired, else None. An advance may have changed its expiry since it
    was listed."""
    document = records.documents.get((kind, id_))
    is_expired = (
        document is not None and document.until is not None and document.until <= records.clock.wall()
    )
    return document if is_expired else None


PRUNE, PRUNE_EXPIRED = scripts.load_script("prune"), scripts.load_script("prune_expired")


async def prune(runner: RedisEngineRunner, limit: int) -> PruneResult:
    shard = runner.shard
    wall, _ = await shard.read_clock()
    expired = await _cancel_expired(runner, limit, wall)
    index_arguments: list[CommandArgument] = []
    for queue in await queues(shard):
        for state in sorted(FINAL):
            retention = queue.settings.retention(state)
            bounds = ("" if bound is None else bound for bound in (retention.age, retention.count))
            index_arguments += (queue.name, state.value, *bounds)
    pruned, early = await _prune_ended_jobs(shard, limit, index_arguments)
    pruned += await prune_documents(runner, limit - pruned, wall)
    oldest = (wall - HISTORY_SECONDS) // 60 * 60
    forgotten = int(await shard.run(PRUNE_EXPIRED, limit, oldest, HOUR_SECONDS, repeatable=True))
    await _delete_unused_accounts(runner, limit, wall)
    return PruneResult(pruned, expired, more=limit in (pruned, expired, forgotten), early=early)


async def _prune_ended_jobs(
    shard: Shard, limit: int, index_arguments: Sequence[CommandArgument]
) -> tuple[int, dict[str, int]]:
    """Deletes up to `limit` ended jobs by retention. Returns the number of deleted jobs, and per queue how
    many of them were deleted before the retention age because of the count limit (J84). `index_arguments`:
    queue, state, age limit and count limit of each index."""
    pruned, has_more = 0, bool(index_arguments)
    early: Counter[str] = Counter()
    while has_more and pruned < limit:
        count = min(MAX_JOBS_PER_SCRIPT, limit - pruned)
        arguments = (count, contract.KNOWN_ID_SECONDS, *index_arguments)
        deleted, has_more, *rows = await shard.run(PRUNE, *arguments, repeatable=True)
        pruned += deleted
        for queue, jobs in zip(rows[::2], rows[1::2], strict=True):
            early[queue.decode()] += jobs
    return pruned, dict(early)


async def _cancel_expired(runner: RedisEngineRunner, limit: int, wall: float) -> int:
    """Cancels up to `limit` expired jobs, the longest expired first. Returns how many were cancelled."""
    shard = runner.shard
    expired_members = await shard.ask(
        "ZRANGEBYSCORE", shard.key(keys.EXPIRING), "-inf", wall, "LIMIT", 0, limit
    )
    ids, expired = [split_member(member)[1] for member in expired_members], 0
    while ids:
        count = await count_fitting(shard, ids)
        some, ids = ids[:count], ids[count:]
        expired += await runner.run(read_sets.change_jobs(some), partial(_cancel_in_engine, ids=some))
    return expired


def _cancel_in_engine(records: Records, ids: Sequence[str]) -> int:
    now, count = records.clock.wall(), 0
    for id_ in ids:
        job = records.jobs.get(id_)
        if job is not None and job.state in PENDING and transitions.is_expired(job, now):
            move_job(records, transitions.expire_job(job, now), now)
            count += 1
    return count


async def _delete_unused_accounts(runner: RedisEngineRunner, limit: int, wall: float) -> None:
    """Deletes the accounts of pool keys that were unused for 60 s, if nothing is reserved, used or closed in
    them. Examines at most `limit` accounts."""
    shard, since = runner.shard, f"({wall - pool_statistics.UNUSED_KEY_SECONDS!r}"
    unused = await shard.ask("ZRANGEBYSCORE", shard.key(keys.ACCOUNT_SEEN), "-inf", since, "LIMIT", 0, limit)
    for account in map(keys.parse_account_name, unused):
        await _delete_if_unused(runner, account)


async def _delete_if_unused(runner: RedisEngineRunner, account: AccountKey) -> None:
    source = runner.source()
    requested = (
        queries.PoolByName(account[0]),
        queries.AccountByKey(account),
        queries.AccountReservationCount(account),
    )
    space = await source.space(requested)
    pool_ledger, pool = space.pool_ledger, space.pool_ledger.pools.get(account[0])
    is_idle = pool is None or pool_statistics.is_at_rest(
        *pool_ledger.peek_account(pool, account), pool_ledger.now()
    )
    if is_idle and not pool_ledger.reservations(account):
        await source.forget_account(account, requested)
    else:
        await runner.shard.ask(
            "ZADD", runner.shard.key(keys.ACCOUNT_SEEN), space.clock.wall(), keys.account_name(account)
        )
