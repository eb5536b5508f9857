"""advance: flows and schedules go on, together with the jobs that come of them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import groupby, islice

import apsw
from msgspec.structs import replace

from tidemill.contract.courses import checked
from tidemill.contract.wakeups import agenda_topic, course_topic
from tidemill.core.courses import REMEMBERED, Advance, Advanced, Course, Kind, Made, Next, became, memory_id
from tidemill.core.job import Error, Group, problem_with
from tidemill.core.queues import Verdict
from tidemill.stores.sqlite.admit import keep_failed
from tidemill.stores.sqlite.courses import SQL, courses, row_of
from tidemill.stores.sqlite.insert import insert_admitted
from tidemill.stores.sqlite.pools import problem_with_needs
from tidemill.stores.sqlite.transaction import Transaction


def advance(transaction: Transaction, advances: Sequence[Advance]) -> list[Advanced]:
    """F1 to F5. Advances are taken in order, each on top of the one before; then come the jobs of all, which
    halves what the tick of a schedule costs."""
    checked(advances)
    standing = _standing(transaction, advances)
    answers: list[Advanced] = []
    for item in advances:
        answer = _advance(transaction, item, standing.get((item.kind, item.id)))
        standing[item.kind, item.id] = answer.course
        answers.append(answer)
    done = (item for item, answer in zip(advances, answers, strict=True) if answer.done)
    standing_for = iter(_make(transaction, [made for item in done for made in item.jobs]))
    return [
        replace(answer, jobs=tuple(islice(standing_for, len(item.jobs)))) if answer.done else answer
        for item, answer in zip(advances, answers, strict=True)
    ]


def _standing(transaction: Transaction, advances: Sequence[Advance]) -> dict[tuple[Kind, str], Course | None]:
    found: dict[tuple[Kind, str], Course | None] = {}
    for kind in Kind:
        ids = [item.id for item in advances if item.kind is kind]
        found.update(((kind, course.id), course) for course in courses(transaction, kind, ids) if course)
    return found


def _advance(transaction: Transaction, item: Advance, before: Course | None) -> Advanced:
    if before is None and (item.expected or _is_remembered(transaction, item)):
        return Advanced(done=False, course=None)
    if before is not None and before.revision != item.expected:
        return Advanced(done=False, course=before)
    if item.taken:
        transaction.execute(SQL.take, (apsw.carray(array("q", item.taken)),))
    after = None if item.next is None else _become(transaction, before, item, item.next)
    if before is not None and after is None:
        forget(transaction, item.kind, item.id)
    return Advanced(done=True, course=after)


def _is_remembered(transaction: Transaction, item: Advance) -> bool:
    return transaction.recall(memory_id(item.kind, item.id)) is not None


def _become(transaction: Transaction, before: Course | None, item: Advance, then: Next) -> Course:
    after = became(before, item, then, transaction.now)
    _save(transaction, before, after)
    if item.again:
        transaction.stir(item.kind, item.id)
    if after.due is not None and (before is None or before.due != after.due):
        transaction.topics.add(agenda_topic(item.kind))
    if after.finished is not None:
        transaction.topics.add(course_topic(item.kind, item.id))
    return after


def _save(transaction: Transaction, before: Course | None, after: Course) -> None:
    if before is not None and _listed(before) == _listed(after):
        values = (after.revision, after.record.decode(), after.due, after.kind.value, after.id)
        transaction.execute(SQL.go_on, values)
    else:
        transaction.execute(SQL.save, row_of(after))


def _listed(course: Course) -> tuple[object, ...]:
    """By what it is found, but for when it is due."""
    return course.name, course.state, course.finished, course.until


def forget(transaction: Transaction, kind: Kind, course: str) -> None:
    """F4. With whatever has stirred it."""
    for sql in (SQL.forget, SQL.forget_stirs):
        transaction.execute(sql, (kind.value, course))
    if kind in REMEMBERED:
        transaction.remember(memory_id(kind, course), Verdict.ACCEPTED, course)
    transaction.topics.add(course_topic(kind, course))


def _make(transaction: Transaction, jobs: Sequence[Made]) -> list[str]:
    """F3. Neighbours that go into the same queue go together, and all keep their order. Answers which job
    stands for each."""
    standing: list[str] = []
    judged = [(made, made.error or _problem(transaction, made)) for made in jobs]
    for (queue, is_good), some in groupby(judged, lambda pair: (pair[0].queue, pair[1] is None)):
        if is_good:
            inserted = insert_admitted(transaction, Group(queue, tuple(made.job for made, _ in some)))
            standing += [one.id for one in inserted]
            continue
        for made, error in some:
            if error is not None:
                keep_failed(transaction, queue, made.job, error)
            standing.append(made.job.id)
    return standing


def _problem(transaction: Transaction, made: Made) -> Error | None:
    problem = problem_with(Group(made.queue, (made.job,))) or problem_with_needs(transaction, (made.job,))
    return None if problem is None else Error("InvalidJob", problem)
