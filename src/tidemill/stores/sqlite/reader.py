"""Reads jobs, counts, history, logs, attempts and workers, on the read connections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tidemill.contract.reader import (
    MAX_AHEAD_COUNTED,
    AttemptRecord,
    Backlog,
    LogLine,
    QueueMinute,
    WorkerInfo,
)
from tidemill.core.batching import BatchPolicy
from tidemill.core.forecast.backlog import Demand, average_needs, sample_size
from tidemill.core.jobs import Job
from tidemill.core.needs import Need, combine_needs, is_batch_lane
from tidemill.core.states import State
from tidemill.stores.sqlite.find import find
from tidemill.stores.sqlite.statements import load_statements
from tidemill.stores.sqlite.transaction import SqliteTransaction

SQL = load_statements("reader")

__all__ = ["ahead", "attempts", "backlog", "counts", "demand", "find", "get", "history", "logs", "workers"]
_ATTEMPT = msgspec.json.Decoder(AttemptRecord)
_BATCHING = msgspec.json.Decoder(BatchPolicy)
_NEEDS = msgspec.json.Decoder(tuple[Need, ...])


def get(transaction: SqliteTransaction, ids: Sequence[str]) -> list[Job | None]:
    found = transaction.by_id(ids)
    return [found.get(name) for name in ids]


def counts(transaction: SqliteTransaction) -> dict[str, dict[State, int]]:
    found: dict[str, dict[State, int]] = {}
    for queue, state, jobs in transaction.counts():
        if jobs:
            found.setdefault(queue, {})[state] = jobs
    return found


def history(transaction: SqliteTransaction, queue: str, since: float) -> list[QueueMinute]:
    rows = transaction.execute(SQL.history, (queue, int(since // 60)))
    return [QueueMinute(minute * 60.0, *counters) for minute, *counters in rows]


def logs(transaction: SqliteTransaction, job: str) -> list[LogLine]:
    return [LogLine(*row) for row in transaction.execute(SQL.logs, (job,))]


def attempts(transaction: SqliteTransaction, job: str) -> list[AttemptRecord]:
    return [_ATTEMPT.decode(packed) for (packed,) in transaction.execute(SQL.attempts, (job,))]


def workers(transaction: SqliteTransaction) -> list[WorkerInfo]:
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


def backlog(transaction: SqliteTransaction, queue: str) -> Backlog:
    def value_of(sql: str) -> Any:
        return transaction.execute(sql, (queue,)).get

    return Backlog(
        oldest_ready=value_of(SQL.oldest_ready),
        next_due=value_of(SQL.next_due),
        retrying=value_of(SQL.retrying),
        last_ended=value_of(SQL.last_ended),
    )


def ahead(transaction: SqliteTransaction, job: str) -> int | None:
    position = transaction.execute(SQL.ready_position, (job,)).fetchone()
    if position is None:
        return None
    return int(transaction.execute(SQL.ahead, (*position, MAX_AHEAD_COUNTED)).get)


def _needs(text: str | None) -> tuple[Need, ...]:
    return _NEEDS.decode(text) if text else ()


def demand(transaction: SqliteTransaction) -> list[Demand]:
    """Returns how many ready jobs wait for pools, and the average units that one of them needs (R10). There
    is one entry per queue, lane and priority."""
    found: list[Demand] = []
    lanes = transaction.execute(SQL.pooled_lanes).fetchall()
    for queue, lane in lanes:
        for priority, jobs in transaction.execute(SQL.priorities, (queue, lane)).fetchall():
            first = (queue, lane, priority, sample_size(len(lanes)))
            sample = transaction.execute(SQL.first_needs, first).fetchall()
            needs = [combine_needs(_needs(text), _needs(deferred)) for text, _, deferred in sample]
            found.append(
                Demand(
                    queue=queue,
                    lane=lane,
                    priority=priority,
                    jobs=jobs,
                    needs=average_needs(needs, shares_calls=is_batch_lane(lane)),
                    batching=_BATCHING.decode(sample[0][1]) if sample[0][1] else None,
                )
            )
    return found
