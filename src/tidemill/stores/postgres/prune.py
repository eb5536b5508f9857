"""prune: ended jobs leave by their queue's retention or with their flow, expired ones end, old ids are
forgotten."""

from __future__ import annotations

from collections import Counter

from tidemill.contract import jobs
from tidemill.contract.jobs import Pruned
from tidemill.contract.reader import HISTORY_KEPT
from tidemill.core import accounts, transitions, usage
from tidemill.core.pools import in_force
from tidemill.core.queues import HOUR, Retention
from tidemill.core.queues import in_force as queue_in_force
from tidemill.core.states import FINAL, State
from tidemill.core.windows import Instant
from tidemill.engine import plans
from tidemill.engine.moves import move
from tidemill.engine.records import Records
from tidemill.stores.postgres.columns import words
from tidemill.stores.postgres.home import Home
from tidemill.stores.postgres.look_books import account_of, pool_of
from tidemill.stores.postgres.look_lanes import settings_of
from tidemill.stores.postgres.prune_courses import prune_courses
from tidemill.stores.postgres.source import SQL as STEP
from tidemill.stores.postgres.statements import load
from tidemill.stores.postgres.step import Step

SQL = load("prune")
QUEUES = load("reader").queues
FOLDED = 2 * HOUR
"""Minutes that are younger may still have to be folded."""

Shelf = tuple[str, State, Retention]
"""The ended jobs of a queue in one state, and how many of them stay."""


async def prune(home: Home, limit: int) -> Pruned:
    async def work(step: Step) -> Pruned:
        await step.fetch(STEP.begin, *step.clock.asked())
        expired = await _expire(home, step, limit)
        pruned, early = await _drop_ended(step, limit)
        pruned += await prune_courses(step, limit - pruned, _drop)
        forgotten = await _forget(step, limit)
        return Pruned(pruned, expired, more=limit in (pruned, expired, forgotten), early=early)

    return await home.connection.run(work)


async def _expire(home: Home, step: Step, limit: int) -> int:
    now = (await step.time()).wall
    ids = [row["id"] for row in await step.fetch(SQL.expired, now, limit)]

    def expire(records: Records) -> int:
        over = [job for id_ in ids if (job := records.jobs.get(id_)) and transitions.is_expired(job, now)]
        pending = [job for job in over if job.state is not State.RUNNING and job.finished is None]
        for job in pending:
            move(records, transitions.expired(job, now), now)
        return len(pending)

    return await home.run_in(step, plans.change(ids), expire) if ids else 0


async def _drop_ended(step: Step, limit: int) -> tuple[int, dict[str, int]]:
    """Queues by name, in each its cancelled, done and failed jobs in turn. Answers how many, and by queue how
    many of them early."""
    now = (await step.time()).wall
    shelves: list[Shelf] = []
    for name, *texts in await step.fetch(QUEUES):
        row = settings_of(*texts)
        settings = queue_in_force(row.declared, row.override, now)
        shelves += [(name, state, settings.retention(state)) for state in sorted(FINAL)]
    doomed: list[str] = []
    early: Counter[str] = Counter()
    counted = {(row["queue"], row["state"]): row["jobs"] for row in await step.fetch(SQL.droppable)}
    for queue, state, kept in shelves:
        many = counted.get((queue, state.value), 0)
        if not many:
            continue
        surplus = 0 if kept.count is None else many - kept.count
        rows = await step.fetch(SQL.oldest, queue, state.value, now, limit - len(doomed))
        leaving = [row for at, row in enumerate(rows) if row[1] <= kept.oldest_kept(now) or at < surplus]
        doomed += [id_ for id_, _ in leaving]
        early[queue] += sum(kept.drops_early(finished, now) for _, finished in leaving)
    await _drop(step, doomed)
    if early := +early:
        await step.fetch(SQL.note_early, now // 60 * 60, list(early), words(early.values()))
    return len(doomed), dict(early)


async def _drop(step: Step, ids: list[str]) -> None:
    if ids:
        time = await step.time()
        until = time.wall + jobs.MEMORY_OF_IDS, time.boot + jobs.MEMORY_OF_IDS
        await step.fetch(SQL.drop, ids, *until, step.clock.boot_id)


async def _forget(step: Step, limit: int) -> int:
    """Ids; minutes of history; workers gone for an hour that hold nothing; keys of pools at rest."""
    time = await step.time()
    minute = time.wall // 60 * 60
    forgotten = await step.fetch(SQL.forget_ids, time.wall, time.boot, step.clock.boot_id, limit)
    await step.fetch(SQL.forget_minutes, (time.wall - HISTORY_KEPT) // 60 * 60)
    await step.fetch(SQL.fold_minutes, minute - FOLDED, minute)
    await step.fetch(SQL.fold_counts)
    await step.fetch(SQL.forget_unheard, time.wall - HOUR)
    await step.fetch(SQL.forget_workers, time.boot - HOUR)
    await _forget_resting(step, limit)
    return len(forgotten)


async def _forget_resting(step: Step, limit: int) -> None:
    """Keys with nothing taken and nothing closed; those that stay are looked at again later."""
    time = await step.time()
    now = Instant(time.wall, time.boot)
    resting: list[tuple[str, str]] = []
    others: list[tuple[str, str]] = []
    for row in await step.fetch(SQL.longest_unseen, time.wall - usage.UNUSED_FOR, limit):
        pool = pool_of(row["declared"], row["override"])
        settings = in_force(pool.declared, pool.override, time.wall)
        account = accounts.current(settings, account_of(row["account"]), step.clock.boot_id, now)
        is_resting = not row["is_held"] and usage.at_rest(settings, account, now)
        (resting if is_resting else others).append((row["pool"], row["key"]))
    if resting:
        await step.fetch(SQL.forget_accounts, *map(list, zip(*resting, strict=True)))
    if others:
        await step.fetch(SQL.look_at_accounts, *map(list, zip(*others, strict=True)), time.wall)
