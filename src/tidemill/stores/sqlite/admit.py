"""admit: arrivals become jobs, once each."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tidemill.contract.jobs import Admission, Arrival, Refused
from tidemill.core import transitions
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
    _refuse(transaction, admission.arrival, verdict)


def _refuse(transaction: Transaction, arrival: Arrival, refused: Refused) -> None:
    """Kept as a failed job, so that whoever wrote it can find out why."""
    if transaction.by_id([arrival.id]) or transaction.recall(arrival.id) is not None:
        return
    appear(transaction, refused.queue)
    readable = arrival.payload.decode(errors="replace").encode()
    new = NewJob(id=arrival.id, task=arrival.task, payload=readable)
    job = transitions.created(new, refused.queue, 0, transaction.now)
    failed = replace(
        job, state=State.FAILED, finished=transaction.now, error=refused.error, reason=transitions.REFUSED
    )
    transaction.add(failed)
    transaction.ended.append(failed.id)
    transaction.remark(failed.queue, "failed", 1)
