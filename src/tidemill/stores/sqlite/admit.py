"""admit: arrivals become jobs, once each."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tidemill.contract.jobs import Admission, Arrival, Refused
from tidemill.core import transitions
from tidemill.core.courses import Kind
from tidemill.core.job import Error, Group, NewJob, problem_with
from tidemill.core.states import State
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
    verdict = admission.verdict
    if isinstance(verdict, NewJob):
        group = Group(admission.queue, (verdict,))
        problem = problem_with(group) or problem_with_needs(transaction, group.jobs)
        if problem is None:
            insert_admitted(transaction, group)
            return
        verdict = Refused(queue=admission.queue, error=Error("InvalidJob", problem))
    arrival = admission.arrival
    refused = NewJob(id=arrival.id, task=arrival.task, payload=arrival.payload)
    keep_failed(transaction, verdict.queue, refused, verdict.error)


def keep_failed(transaction: Transaction, queue: str, refused: NewJob, error: Error) -> None:
    """What cannot be a job is kept as a failed one, so that whoever wrote it can find out why; unless its id
    is known. Of what is wrong with it no more is kept than any job may have."""
    if transaction.by_id([refused.id]) or transaction.recall(refused.id) is not None:
        return
    appear(transaction, queue)
    readable = refused.payload.decode(errors="replace").encode()
    new = NewJob(id=refused.id, task=refused.task, payload=readable, flow=refused.flow)
    now = transaction.now
    job = transitions.created(new, queue, 0, now)
    failed = replace(job, state=State.FAILED, finished=now, error=error, reason=transitions.REFUSED)
    transaction.add(failed)
    transaction.ended.append(failed.id)
    transaction.remark(queue, "failed", 1)
    if failed.flow is not None:
        transaction.stir(Kind.FLOW, failed.flow.id, failed.id)
