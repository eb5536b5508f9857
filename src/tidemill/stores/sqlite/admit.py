"""admit: arrivals become jobs, once each."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tidemill.contract.jobs import Admission, Arrival, Refused
from tidemill.core.courses import Kind
from tidemill.core.job import Error, Group, NewJob, problem_with
from tidemill.core.refused import refused
from tidemill.stores.sqlite.insert import insert_admitted
from tidemill.stores.sqlite.pools import problem_with_needs
from tidemill.stores.sqlite.queues import appear
from tidemill.stores.sqlite.statements import load
from tidemill.stores.sqlite.transaction import Transaction

SQL = load("admit")


def arrivals(transaction: Transaction, limit: int, after: int) -> list[Arrival]:
    return [
        Arrival(
            seq=seq,
            id=name.decode(errors="replace"),
            task=task.decode(errors="replace"),
            payload=payload,
            options=options,
            arrived=arrived,
        )
        for seq, name, task, payload, options, arrived in transaction.execute(SQL.oldest, (after, limit))
    ]


def admit(transaction: Transaction, admissions: Sequence[Admission]) -> int:
    admitted = 0
    for admission in admissions:
        if transaction.execute(SQL.take, (admission.arrival.seq,)).fetchone() is None:
            continue
        admitted += 1
        _admit(transaction, admission)
    return admitted


def _admit(transaction: Transaction, admission: Admission) -> None:
    arrival, verdict = admission.arrival, admission.verdict
    asked = NewJob(id=arrival.id, task=arrival.task, payload=arrival.payload)
    if isinstance(verdict, NewJob):
        group = Group(admission.queue, (verdict,))
        problem = problem_with(group) or problem_with_needs(transaction, group.jobs)
        if problem is None:
            insert_admitted(transaction, group)
            return
        asked = replace(verdict, id=arrival.id, task=arrival.task, payload=arrival.payload)
        verdict = Refused(queue=admission.queue, error=Error("InvalidJob", problem))
    keep_failed(transaction, verdict.queue, asked, verdict.error)


def keep_failed(transaction: Transaction, queue: str, asked: NewJob, error: Error) -> None:
    """What cannot be a job is kept as a failed one, so that whoever wrote it can find out why; unless its id
    is known."""
    if transaction.by_id([asked.id]) or transaction.recall(asked.id) is not None:
        return
    appear(transaction, queue)
    failed = refused(asked, queue, 0, transaction.now, error)
    transaction.add(failed)
    transaction.ended.append(failed.id)
    transaction.remark(queue, "failed", 1)
    if failed.flow is not None:
        transaction.stir(Kind.FLOW, failed.flow.id, failed.id)
