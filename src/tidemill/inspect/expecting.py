"""When a job that waits is expected to start."""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import replace

from tidemill.core.forecast.answer import alone as by_each
from tidemill.core.forecast.answer import concerned, ends
from tidemill.core.forecast.lines import Line, Work
from tidemill.core.forecast.meeting import Asked
from tidemill.core.job import Job
from tidemill.core.needs import Need
from tidemill.core.states import State
from tidemill.core.transitions import is_expired
from tidemill.inspect.backlog import lines_of, work_of
from tidemill.inspect.facts import Facts
from tidemill.inspect.metered import holds_a_place, known_to, needs_of_job, wait_of
from tidemill.inspect.plan import LimitPlan
from tidemill.inspect.planning import limits_told, slowest
from tidemill.inspect.situation import Situation


class Start(msgspec.Struct, frozen=True):
    """`at` is a wall time. `by` is the limit that takes the better part of the time until then, with those
    before it: another one may be full at the moment."""

    at: float
    by: LimitPlan | None = None


def start_of(facts: Facts) -> Start | None:
    """None when nobody can say, or it never will as things are."""
    job, situation = facts.job, facts.situation
    if situation is None or job.state not in (State.READY, State.SCHEDULED):
        return None
    if is_expired(job, facts.now.wall) or job.unknown_for or not facts.workers:
        return None
    seconds, by = _found(facts, situation)
    if seconds is None or math.isinf(seconds):
        return None
    return Start(facts.now.wall + seconds, by)


def _found(facts: Facts, situation: Situation) -> tuple[float | None, LimitPlan | None]:
    job, needs = facts.job, needs_of_job(facts.job)
    known = known_to(situation, needs)
    alone = wait_of(job, needs, known)
    if holds_a_place(job, known) and math.isfinite(alone):
        return alone, None
    bounded = any(limit.per is None for pool in known.values() for limit in pool.settings.limits)
    busy = all(worker.holds >= worker.concurrency for worker in facts.workers)
    if facts.takes is None and (busy or (bounded and math.isinf(alone))):
        return None, None
    ours, others = _lines(facts, situation, needs)
    asked = Asked(
        lines=[ours, *others],
        know=situation.known(),
        crew=situation.crew([job.queue]),
        takes=facts.takes or 0.0,
    )
    seconds = ends(asked)[0][-1]
    return seconds, _slowest(asked, seconds)


def _slowest(asked: Asked, seconds: float) -> LimitPlan | None:
    asked = replace(asked, lines=[asked.lines[index] for index in concerned(asked, [0])])
    found = slowest(limits_told(by_each(asked, [0]), asked.know))
    if found is None or found.seconds is None or found.seconds < seconds / 2:
        return None
    return found


def _lines(facts: Facts, situation: Situation, needs: tuple[Need, ...]) -> tuple[Line, list[Line]]:
    """A ready job stands behind those of its lane; one that is due later meets those that are left then."""
    job, knows = facts.job, situation.known()
    due = max(0.0, job.due - facts.now.wall) if job.state is State.SCHEDULED else 0.0
    before: list[Work] = []
    others = situation.demand
    if due <= 0:
        before = _before(facts, situation)
        others = [each for each in situation.demand if (each.queue, each.lane) != (job.queue, job.lane)]
    ours = Line(
        work=(*before, Work(1.0, needs)),
        priority=job.priority,
        weight=situation.weight(job.queue),
        queue=job.queue,
        opens=max(due, situation.opens(job.queue), facts.ripe),
    )
    return ours, lines_of(situation, others, knows)


def _before(facts: Facts, situation: Situation) -> list[Work]:
    """So many as stand before it, of the needs its lane has."""
    job, left = facts.job, facts.ahead or 0
    found: list[Work] = []
    for each in situation.demand:
        if (each.queue, each.lane) == (job.queue, job.lane) and left > 0 and each.priority <= job.priority:
            jobs = min(left, each.jobs)
            left -= jobs
            found.append(_calls(job, jobs, each.needs, situation))
    if left > 0:
        found.append(Work(float(left)))
    return found


def _calls(job: Job, jobs: int, needs: tuple[Need, ...], situation: Situation) -> Work:
    """Of those that share calls some go with the job itself."""
    work = work_of(jobs, needs, job.batching, situation.known())
    if job.batching is None:
        return work
    return Work(float(jobs // job.batching.max_items), work.needs)
