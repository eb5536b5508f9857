"""Reading, in its own transactions: never in the way of a writer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tidemill.contract.reader import (
    AHEAD_COUNTED,
    AttemptRecord,
    Backlog,
    LogLine,
    Minute,
    WorkerInfo,
)
from tidemill.core.batching import Batching
from tidemill.core.demand import Demand, averaged, sampled
from tidemill.core.job import Job
from tidemill.core.needs import Need, is_of_batches, together
from tidemill.core.states import State
from tidemill.stores.sqlite.find import find
from tidemill.stores.sqlite.statements import load
from tidemill.stores.sqlite.transaction import Transaction

SQL = load("reader")

__all__ = ["ahead", "attempts", "backlog", "counts", "demand", "find", "get", "history", "logs", "workers"]
_ATTEMPT = msgspec.json.Decoder(AttemptRecord)
_BATCHING = msgspec.json.Decoder(Batching)
_NEEDS = msgspec.json.Decoder(tuple[Need, ...])


def get(transaction: Transaction, ids: Sequence[str]) -> list[Job | None]:
    found = transaction.by_id(ids)
    return [found.get(name) for name in ids]


def counts(transaction: Transaction) -> dict[str, dict[State, int]]:
    found: dict[str, dict[State, int]] = {}
    for queue, state, jobs in transaction.counts():
        if jobs:
            found.setdefault(queue, {})[state] = jobs
    return found


def history(transaction: Transaction, queue: str, since: float) -> list[Minute]:
    rows = transaction.execute(SQL.history, (queue, int(since // 60)))
    return [Minute(minute * 60.0, *counters) for minute, *counters in rows]


def logs(transaction: Transaction, job: str) -> list[LogLine]:
    return [LogLine(*row) for row in transaction.execute(SQL.logs, (job,))]


def attempts(transaction: Transaction, job: str) -> list[AttemptRecord]:
    return [_ATTEMPT.decode(packed) for (packed,) in transaction.execute(SQL.attempts, (job,))]


def workers(transaction: Transaction) -> list[WorkerInfo]:
    return [
        WorkerInfo(
            id=name,
            host=host,
            pid=pid,
            queues=tuple(msgspec.json.decode(served)),
            concurrency=concurrency,
            seen=seen,
            holds=holds,
        )
        for name, host, pid, served, concurrency, seen, holds in transaction.execute(
            SQL.workers, (transaction.boot,)
        )
    ]


def backlog(transaction: Transaction, queue: str) -> Backlog:
    def one(sql: str) -> Any:
        return transaction.execute(sql, (queue,)).get

    return Backlog(
        oldest_ready=one(SQL.oldest_ready),
        next_due=one(SQL.next_due),
        retrying=one(SQL.retrying),
        last_ended=one(SQL.last_ended),
    )


def ahead(transaction: Transaction, job: str) -> int | None:
    place = transaction.execute(SQL.ready_place, (job,)).fetchone()
    if place is None:
        return None
    return int(transaction.execute(SQL.ahead, (*place, AHEAD_COUNTED)).get)


def _needs(text: str | None) -> tuple[Need, ...]:
    return _NEEDS.decode(text) if text else ()


def demand(transaction: Transaction) -> list[Demand]:
    """R10."""
    found: list[Demand] = []
    lanes = transaction.execute(SQL.pooled_lanes).fetchall()
    for queue, lane in lanes:
        for priority, jobs in transaction.execute(SQL.priorities, (queue, lane)).fetchall():
            first = (queue, lane, priority, sampled(len(lanes)))
            sample = transaction.execute(SQL.first_needs, first).fetchall()
            needs = [together(_needs(text), _needs(extra)) for text, _, extra in sample]
            found.append(
                Demand(
                    queue=queue,
                    lane=lane,
                    priority=priority,
                    jobs=jobs,
                    needs=averaged(needs, shares_calls=is_of_batches(lane)),
                    batching=_BATCHING.decode(sample[0][1]) if sample[0][1] else None,
                )
            )
    return found
