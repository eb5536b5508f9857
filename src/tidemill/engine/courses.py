"""advance: flows and schedules go on, together with the jobs that come of them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tidemill.contract.courses import checked
from tidemill.contract.wakeups import agenda_topic, course_topic
from tidemill.core.courses import REMEMBERED, Advance, Advanced, Course, Made, Next, became, memory_id
from tidemill.core.job import Error, Group
from tidemill.core.job import problem_with as problem_with_jobs
from tidemill.core.queues import Verdict
from tidemill.engine.admit import keep_failed
from tidemill.engine.insert import insert_one
from tidemill.engine.pools import problem_with_needs
from tidemill.engine.records import Records


def advance(records: Records, advances: Sequence[Advance]) -> list[Advanced]:
    """F1 to F5. Advances are taken in order, each on top of the one before; then come the jobs of all."""
    checked(advances)
    answers = [_advance(records, item) for item in advances]
    return [
        replace(answer, jobs=tuple(_make(records, made) for made in item.jobs)) if answer.done else answer
        for item, answer in zip(advances, answers, strict=True)
    ]


def _advance(records: Records, item: Advance) -> Advanced:
    at = (item.kind, item.id)
    before = records.courses.get(at)
    if before is None and (item.expected or records.recall(memory_id(*at)) is not None):
        return Advanced(done=False, course=None)
    if before is not None and before.revision != item.expected:
        return Advanced(done=False, course=before)
    records.take_stirs(item.taken)
    after = None if item.next is None else _become(records, before, item, item.next)
    if before is not None and after is None:
        forget(records, before)
    return Advanced(done=True, course=after)


def _become(records: Records, before: Course | None, item: Advance, then: Next) -> Course:
    after = became(before, item, then, records.clock.wall())
    records.put_course(after)
    if item.again:
        records.stir(item.kind, item.id)
    if after.due is not None and (before is None or before.due != after.due):
        records.topics[agenda_topic(item.kind)] = None
    if after.finished is not None:
        records.topics[course_topic(item.kind, item.id)] = None
    return after


def _make(records: Records, made: Made) -> str:
    """F3. Answers which job stands for it."""
    now, error = records.clock.wall(), made.error
    if error is None:
        problem = problem_with_jobs(Group(made.queue, (made.job,))) or problem_with_needs(records, [made.job])
        if problem is None:
            return insert_one(records, made.queue, made.job, now).id
        error = Error("InvalidJob", problem)
    keep_failed(records, made.queue, made.job, error, now)
    return made.job.id


def forget(records: Records, course: Course) -> None:
    """F4."""
    records.drop_course(course)
    if course.kind in REMEMBERED:
        records.remember(memory_id(course.kind, course.id), Verdict.ACCEPTED, course.id)
    records.topics[course_topic(course.kind, course.id)] = None
