"""arrivals and admit: requests written straight into the store become jobs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from msgspec.structs import replace

from tidemill.contract.jobs import Admission, Arrival, Refused
from tidemill.core.job import Error, Group, NewJob, problem_with
from tidemill.core.refused import refused
from tidemill.engine.insert import insert_one
from tidemill.engine.moves import move
from tidemill.engine.pools import problem_with_needs
from tidemill.engine.records import Records


def arrive(records: Records, job: str, task: str, payload: bytes, options: bytes) -> None:
    """What a foreign producer does with one INSERT in a database."""
    records.arrival_seq += 1
    records.arrivals[records.arrival_seq] = Arrival(
        seq=records.arrival_seq,
        id=job,
        task=task,
        payload=payload,
        options=options,
        arrived=records.clock.wall(),
    )


def arrivals(records: Records, limit: int, after: int) -> list[Arrival]:
    return list(islice((a for seq, a in records.arrivals.items() if seq > after), limit))


def admit(records: Records, admissions: Sequence[Admission]) -> int:
    """J20, J21. Answers how many arrivals were taken off the list. One whose id is known already
    is only taken off. A verdict the store itself finds a problem with counts as refused."""
    taken = 0
    for admission in admissions:
        if records.arrivals.pop(admission.arrival.seq, None) is not None:
            _admit(records, admission)
            taken += 1
    return taken


def _admit(records: Records, admission: Admission) -> None:
    now, arrival, verdict = records.clock.wall(), admission.arrival, admission.verdict
    asked = NewJob(id=arrival.id, task=arrival.task, payload=arrival.payload)
    if isinstance(verdict, NewJob):
        problem = problem_with(Group(admission.queue, (verdict,))) or problem_with_needs(records, [verdict])
        if problem is None:
            insert_one(records, admission.queue, verdict, now)
            return
        asked = replace(verdict, id=arrival.id, task=arrival.task, payload=arrival.payload)
        verdict = Refused(queue=admission.queue, error=Error("InvalidJob", problem))
    keep_failed(records, verdict.queue, asked, verdict.error, now)


def keep_failed(records: Records, queue: str, new: NewJob, error: Error, now: float) -> None:
    """A request that cannot become a job is kept as a failed one, unless its id is known."""
    if new.id in records.jobs or records.recall(new.id) is not None:
        return
    move(records, refused(new, queue, records.next_seq(), now, error), now)
