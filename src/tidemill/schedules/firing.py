"""One round over the agenda: what is due gets its jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from tidemill.contract.store import Store
from tidemill.core.courses import Course, Kind
from tidemill.core.states import LIVE
from tidemill.schedules.deciding import Decision, decide
from tidemill.schedules.keeping import Changed, advance_of
from tidemill.schedules.making import fits, make
from tidemill.schedules.schedule import Past, Schedule, in_force, schedule_of
from tidemill.tasks.definition import TaskDefinition

AT_ONCE = 500
STEP = 100
"""How many schedules go on, and how many jobs they make, in one step of the store: no step is a long one."""


PATIENCE = 30.0
"""So long whoever does not know a tick's arguments leaves it to another version. Then it fails; a little later
it would be taken for missed."""


class Broken(NamedTuple):
    schedule: str
    error: Exception


class Round(NamedTuple):
    """`left` are due and stay so: their task or its arguments are not known here, or they cannot be read.
    `next_due` is in so many seconds."""

    left: set[str]
    broken: list[Broken]
    more: bool
    next_due: float | None


Tell = Callable[[str, Past], None]
"""Of each tick that was seen to, by the schedule's name."""


async def fire_due(store: Store, tasks: Mapping[str, TaskDefinition], left: int, tell: Tell) -> Round:
    """`left` are those of the last round: they are due before all others, and hide nothing behind them. A
    round that finds as many as it looks for has made some go on, or leaves more of them than the last."""
    limit = AT_ONCE + left
    agenda = await store.agenda(Kind.SCHEDULE, limit)
    ours, others, broken = _read([stirred.course for stirred in agenda.stirred], tasks)
    missed = False
    if ours:
        now = (await store.read_clock()).wall
        others |= {course.id for course, schedule in ours if _is_anothers(course, schedule, tasks, now)}
        ours = [(course, schedule) for course, schedule in ours if course.id not in others]
        live = await _live(store, [schedule for _, schedule in ours], now)
        for step in _steps(_decided(ours, tasks, live, now, broken)):
            missed |= await _advance(store, step, now, tell)
    others |= {one.schedule for one in broken}
    return Round(others, broken, missed or len(agenda.stirred) == limit, agenda.next_due)


def _read(
    courses: Iterable[Course], tasks: Mapping[str, TaskDefinition]
) -> tuple[list[tuple[Course, Schedule]], set[str], list[Broken]]:
    ours, others, broken = [], set(), []
    for course in courses:
        try:
            schedule = schedule_of(course)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:  # of a newer version, or no schedule
            broken.append(Broken(course.id, error))
            continue
        if schedule.work.task in tasks:
            ours.append((course, schedule))
        else:
            others.add(course.id)
    return ours, others, broken


def _is_anothers(course: Course, schedule: Schedule, tasks: Mapping[str, TaskDefinition], now: float) -> bool:
    """While a new version is rolled out, the old one cannot know its arguments."""
    waits = now - (now if course.due is None else course.due)
    return waits < PATIENCE and not fits(schedule.work, tasks[schedule.work.task])


async def _live(store: Store, schedules: Iterable[Schedule], now: float) -> set[str]:
    """Which of the jobs that could be in the way have not ended."""
    last = [one.last for one in schedules if one.last is not None and in_force(one, now).overlap == "skip"]
    jobs = await store.get(last) if last else []
    return {job.id for job in jobs if job is not None and job.state in LIVE}


def _decided(
    ours: Iterable[tuple[Course, Schedule]],
    tasks: Mapping[str, TaskDefinition],
    live: set[str],
    now: float,
    broken: list[Broken],
) -> Iterator[tuple[Course, Decision]]:
    for course, schedule in ours:
        by_task = partial(make, schedule, tasks[schedule.work.task], in_force(schedule, now).overlap)
        try:
            decision = decide(schedule, now, live=schedule.last in live, make=by_task)
        except Exception as error:  # noqa: BLE001 - a zone this machine does not know, for one
            broken.append(Broken(course.id, error))
            continue
        yield course, decision


def _steps(decided: Iterable[tuple[Course, Decision]]) -> Iterator[list[tuple[Course, Decision]]]:
    step: list[tuple[Course, Decision]] = []
    size = 0
    for course, decision in decided:
        weight = max(1, len(decision.jobs))
        if step and size + weight > STEP:
            yield step
            step, size = [], 0
        step.append((course, decision))
        size += weight
    if step:
        yield step


async def _advance(store: Store, decided: Sequence[tuple[Course, Decision]], now: float, tell: Tell) -> bool:
    """True when somebody else was quicker with one of them, who may have left it due."""
    advances = [advance_of(course, Changed(one.schedule, one.jobs), now) for course, one in decided]
    answers = await store.advance(advances) if advances else []
    for (course, one), answer in zip(decided, answers, strict=True):
        for past in one.news if answer.done else ():
            tell(course.id, past)
    return not all(answer.done for answer in answers)
