"""Runs an operation of the engine in one transaction: loads rows, lets the engine decide, and commits its
changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any, TypeVar

from tidemill.clock import Entropy
from tidemill.contract.coordination import job_topic
from tidemill.engine import queries
from tidemill.engine import transaction as engine_transaction
from tidemill.engine.changes import Changes
from tidemill.engine.queries import RowQuery, Rows, StoreCounters
from tidemill.engine.read_sets import ReadSet
from tidemill.engine.transaction import EngineVerb
from tidemill.stores.postgres import documents, load_jobs, load_lanes, pools
from tidemill.stores.postgres.commit import commit
from tidemill.stores.postgres.connection import VERB_TIMEOUT_SECONDS, PostgresConnection
from tidemill.stores.postgres.load_jobs import LoadedRows, TransactionView
from tidemill.stores.postgres.statements import load_statements
from tidemill.stores.postgres.transaction import PostgresTransaction

SQL = load_statements("load_jobs")
RowLoader = Callable[[TransactionView, dict[Any, int], LoadedRows], Awaitable[None]]

# Jobs before workers: every transaction locks in this order.
_LOADERS: dict[type[RowQuery], RowLoader] = {
    queries.ClaimPrefetch: load_lanes.load_claim_candidates,
    queries.JobById: load_jobs.load_jobs,
    queries.WorkerRunningJobs: load_jobs.load_running_jobs,
    queries.OverdueJobs: load_jobs.load_overdue_jobs,
    queries.UniqueHolders: load_jobs.load_unique_holders,
    queries.JobSuccessors: load_jobs.load_successors,
    queries.KnownIdByRequest: load_jobs.load_known_ids,
    queries.KeyRunningCount: load_jobs.load_running_counts,
    queries.StateCount: load_jobs.load_counts,
    queries.JobCheckpoints: load_jobs.load_checkpoints,
    queries.ArrivalBySeq: load_jobs.load_arrivals,
    queries.QueueByName: load_lanes.load_queues,
    queries.LaneByName: load_lanes.load_lanes,
    queries.OpenLanesOfGroup: load_lanes.load_open_lanes,
    queries.ScheduledJobs: load_lanes.load_scheduled,
    queries.LaneWakeTimes: load_lanes.load_blocked_lanes,
    queries.BlockedLanes: load_lanes.load_lanes_blocked_by,
    queries.BlockedQueues: load_lanes.load_queues_blocked_by,
    queries.PoolByName: pools.load_pools,
    queries.PoolNames: pools.load_pool_names,
    queries.AccountByKey: pools.load_accounts,
    queries.PoolAccountKeys: pools.load_account_keys,
    queries.ClaimReservations: pools.load_reservations,
    queries.AccountReservationCount: pools.load_reservation_counts,
    queries.PoolClaims: pools.load_claims_on_pool,
    queries.AbandonedClaims: pools.load_abandoned_claims,
    queries.UnconfirmedSince: pools.load_unconfirmed_units,
    queries.DocumentById: documents.load_documents,
    queries.WorkerById: load_jobs.load_workers,
}


class PostgresRowSource:
    """Loads and writes rows for the engine, in one transaction. Implements `engine.transaction.RowSource`.
    Call `begin` before any other method."""

    def __init__(self, transaction: PostgresTransaction) -> None:
        self._transaction = transaction
        self._view: TransactionView | None = None

    async def begin(self) -> None:
        clock = self._transaction.clock
        sent = clock.process_time()
        row = await self._transaction.first(SQL.begin, *clock.arguments())
        assert row is not None  # noqa: S101 - a function call has one row
        wall, boot, epoch, picks, seq, fence, waited = row
        # The server's clock may have been set meanwhile: the statement waited no longer than this process
        # did.
        self._transaction.decided = sent + min(max(0.0, waited or 0.0), clock.process_time() - sent)
        clock.update(wall, boot, epoch)
        numbers = StoreCounters(wall, boot, self._transaction.clock.boot_id, picks, seq, fence)
        self._view = TransactionView(self._transaction, numbers)

    async def load(self, requested: Mapping[RowQuery, int]) -> tuple[Rows, StoreCounters]:
        by_kind: dict[type[RowQuery], dict[RowQuery, int]] = defaultdict(dict)
        for want, count in requested.items():
            by_kind[type(want)][want] = count
        view = self._current_view()
        found: LoadedRows = {}
        for kind, load in _LOADERS.items():
            if of_kind := by_kind.get(kind):
                await load(view, of_kind, found)
        return found, view.numbers

    async def take_seqs(self, count: int) -> list[int]:
        return [row[0] for row in await self._transaction.fetch(SQL.take_seqs, count)]

    async def take_fence(self) -> int:
        return int(await self._transaction.value(SQL.take_fence))

    async def commit(self, changes: Changes, rows: Rows) -> bool:
        await commit(self._current_view(), changes, rows)
        return True

    def _current_view(self) -> TransactionView:
        assert self._view is not None, "begin first"  # noqa: S101 - an invariant of this file
        return self._view


T = TypeVar("T")

SECONDS_PER_ROW = 0.001
"""Extra time per row: a verb of ten thousand jobs may take longer than one of ten."""

_JOB_PREFIX = job_topic("")


class PostgresEngineRunner:
    def __init__(self, connection: PostgresConnection, entropy: Entropy) -> None:
        self.connection, self.entropy = connection, entropy

    def peek_claim_id(self) -> int:
        """Returns the claim id that the random generator will produce next, without advancing the generator.
        The fast path must send an id before it knows whether there is a job to claim."""
        return deepcopy(self.entropy).claim_id()

    async def run(self, plan: ReadSet, verb: EngineVerb[T], *, repeatable: bool = True) -> T:
        """Runs the engine function `verb` in one transaction and returns its answer. `plan`: the rows to load
        first. `repeatable=True`: retry even if the commit may have succeeded."""
        answer, _ = await self.run_timed(plan, verb, repeatable=repeatable)
        return answer

    async def run_timed(
        self, plan: ReadSet, verb: EngineVerb[T], *, repeatable: bool = True
    ) -> tuple[T, float]:
        """Runs the engine function `verb` like `run`. Returns its answer, and the time when the transaction
        stopped waiting for other engine transactions."""

        async def work(transaction: PostgresTransaction) -> tuple[T, float]:
            return await self.run_in(transaction, plan, verb), transaction.decided

        return await self.connection.run(work, repeatable=repeatable, time_limit=timeout_for(len(plan.first)))

    async def run_in(self, transaction: PostgresTransaction, plan: ReadSet, verb: EngineVerb[T]) -> T:
        source = PostgresRowSource(transaction)
        await source.begin()

        @asynccontextmanager
        async def begin() -> AsyncIterator[PostgresRowSource]:
            yield source

        answer, changes = await engine_transaction.run_verb(begin, plan, verb, self.entropy, _never_retry)
        for topic in changes.topics:
            if topic.startswith(_JOB_PREFIX):
                transaction.ended.append(topic.removeprefix(_JOB_PREFIX))
            else:
                transaction.topics.add(topic)
        return answer


def timeout_for(rows: int) -> float:
    return VERB_TIMEOUT_SECONDS + rows * SECONDS_PER_ROW


async def _never_retry(_tries: int) -> None:
    raise AssertionError("the rows that a transaction has read stay locked until it commits")
