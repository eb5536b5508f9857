"""The store method `advance`: writes flows and schedules together with the jobs that they create."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tidemill.contract.coordination import document_topic, worklist_topic
from tidemill.contract.documents import check_advances
from tidemill.core.documents import (
    REMEMBERED_KINDS,
    Advance,
    AdvanceResult,
    Document,
    DocumentJob,
    DocumentUpdate,
    apply_advance,
    remembered_id,
)
from tidemill.core.jobs import Error, JobGroup
from tidemill.core.jobs import problem_with_group as problem_with_jobs
from tidemill.core.queues import InsertVerdict
from tidemill.engine.insert import insert_one, store_rejected
from tidemill.engine.pools import problem_with_needs
from tidemill.engine.records import Records


def advance(records: Records, advances: Sequence[Advance]) -> list[AdvanceResult]:
    """Changes documents as `advances` ask, and creates their jobs. Returns one result per advance (F1 to F5).
    An advance is refused if its document has another revision than expected."""
    check_advances(advances)
    answers = [_advance(records, item) for item in advances]
    return [
        replace(answer, jobs=tuple(_create_job(records, made) for made in item.jobs))
        if answer.done
        else answer
        for item, answer in zip(advances, answers, strict=True)
    ]


def _advance(records: Records, item: Advance) -> AdvanceResult:
    at = (item.kind, item.id)
    before = records.documents.get(at)
    if before is None and (item.expected or records.find_known_id(remembered_id(*at)) is not None):
        return AdvanceResult(done=False, document=None)
    if before is not None and before.revision != item.expected:
        return AdvanceResult(done=False, document=before)
    records.take_work_marks(item.taken)
    after = None if item.next is None else _write_document(records, before, item, item.next)
    if before is not None and after is None:
        forget_document(records, before)
    return AdvanceResult(done=True, document=after)


def _write_document(
    records: Records, before: Document | None, item: Advance, then: DocumentUpdate
) -> Document:
    after = apply_advance(before, item, then, records.clock.wall())
    records.put_document(after)
    if item.requeue:
        records.mark_work(item.kind, item.id)
    if after.due is not None and (before is None or before.due != after.due):
        records.topics[worklist_topic(item.kind)] = None
    if after.finished is not None:
        records.topics[document_topic(item.kind, item.id)] = None
    return after


def _create_job(records: Records, made: DocumentJob) -> str:
    """Creates a job for a document and returns the job's id. If another job holds its unique key, returns the
    id of that job (F3)."""
    now, error = records.clock.wall(), made.error
    if error is None:
        problem = problem_with_jobs(JobGroup(made.queue, (made.job,))) or problem_with_needs(
            records, [made.job]
        )
        if problem is None:
            return insert_one(records, made.queue, made.job, now).id
        error = Error("InvalidJob", problem)
    store_rejected(records, made.queue, made.job, error, now)
    return made.job.id


def forget_document(records: Records, document: Document) -> None:
    """Deletes a document. The store still remembers the id of a flow, so that the same flow is not started
    again (F4)."""
    records.drop_document(document)
    if document.kind in REMEMBERED_KINDS:
        records.remember(remembered_id(document.kind, document.id), InsertVerdict.ACCEPTED, document.id)
    records.topics[document_topic(document.kind, document.id)] = None
