"""Explains why a job waits or what became of it, and estimates when it starts."""

from __future__ import annotations

import math
from datetime import tzinfo
from typing import Any

import msgspec
from msgspec.structs import replace

from tidemill.core.forecast.backlog import CallGroup, LaneBacklog
from tidemill.core.forecast.completion import (
    ForecastRequest,
    completion_times,
    completion_times_by_limit,
    related_backlogs,
)
from tidemill.core.jobs import Job
from tidemill.core.needs import IMPLIED, Need
from tidemill.core.states import PENDING, State
from tidemill.core.transitions import is_expired
from tidemill.inspect.causes import Cause, CauseCode, finished_cause, running_cause
from tidemill.inspect.explanation_inputs import ExplanationInputs
from tidemill.inspect.forecast_inputs import StoreSnapshot, estimate_calls, group_demand
from tidemill.inspect.formatting import TimeFormatter, format_quantity
from tidemill.inspect.plan import LimitPlan, limit_plans, slowest_limit
from tidemill.inspect.pool_waits import find_pools, has_firm_hold, needs_of_job, pool_wait_seconds
from tidemill.inspect.wait_causes import find_wait_causes, next_in_turn_cause


class StartEstimate(msgspec.Struct, frozen=True):
    """The expected start of a job.

    - `at`: a wall time.
    - `by`: the limit that causes most of the wait; None if no limit causes it."""

    at: float
    by: LimitPlan | None = None


def estimate_start(facts: ExplanationInputs) -> StartEstimate | None:
    """Returns the expected start of a ready or scheduled job. None if the start is unknown, or if the job
    cannot start until someone acts."""
    job, snapshot = facts.job, facts.snapshot
    if snapshot is None or job.state not in (State.READY, State.SCHEDULED):
        return None
    if is_expired(job, facts.now.wall) or job.unknown_for or not facts.workers:
        return None
    seconds, by = _estimate_seconds(facts, snapshot)
    if seconds is None or math.isinf(seconds):
        return None
    return StartEstimate(facts.now.wall + seconds, by)


def _estimate_seconds(
    facts: ExplanationInputs, snapshot: StoreSnapshot
) -> tuple[float | None, LimitPlan | None]:
    job, needs = facts.job, needs_of_job(facts.job)
    known = find_pools(snapshot, needs)
    alone = pool_wait_seconds(job, needs, known)
    if has_firm_hold(job, known) and math.isfinite(alone):
        return alone, None
    bounded = any(limit.per is None for pool in known.values() for limit in pool.settings.limits)
    busy = all(worker.holds >= worker.concurrency for worker in facts.workers)
    if facts.job_seconds is None and (busy or (bounded and math.isinf(alone))):
        return None, None
    ours, others = _start_backlogs(facts, snapshot, needs)
    request = ForecastRequest(
        lines=[ours, *others],
        know=snapshot.known(),
        worker_capacity=snapshot.worker_capacity([job.queue]),
        call_seconds=facts.job_seconds or 0.0,
    )
    seconds = completion_times(request)[0][-1]
    return seconds, _slowest_limit_before(request, seconds)


def _slowest_limit_before(request: ForecastRequest, seconds: float) -> LimitPlan | None:
    request = replace(request, lines=[request.lines[index] for index in related_backlogs(request, [0])])
    found = slowest_limit(limit_plans(completion_times_by_limit(request, [0]), request.know))
    if found is None or found.seconds is None or found.seconds < seconds / 2:
        return None
    return found


def _start_backlogs(
    facts: ExplanationInputs, snapshot: StoreSnapshot, needs: tuple[Need, ...]
) -> tuple[LaneBacklog, list[LaneBacklog]]:
    """Returns the calls of the job's lane up to and including the job, and the calls of all other lanes.

    If the job is due later, the first value has only this job, and the second value has all other jobs."""
    job, find_pool = facts.job, snapshot.known()
    due = max(0.0, job.due - facts.now.wall) if job.state is State.SCHEDULED else 0.0
    before: list[CallGroup] = []
    others = snapshot.demand
    if due <= 0:
        before = _calls_before(facts, snapshot)
        others = [
            demand for demand in snapshot.demand if (demand.queue, demand.lane) != (job.queue, job.lane)
        ]
    ours = LaneBacklog(
        work=(*before, CallGroup(1.0, needs)),
        priority=job.priority,
        weight=snapshot.weight(job.queue),
        queue=job.queue,
        opens=max(due, snapshot.seconds_until_resumed(job.queue), facts.batch_due),
    )
    return ours, group_demand(snapshot, others, find_pool)


def _calls_before(facts: ExplanationInputs, snapshot: StoreSnapshot) -> list[CallGroup]:
    """Returns the calls of the jobs that start before this job in its lane."""
    job, left = facts.job, facts.ahead or 0
    found: list[CallGroup] = []
    lane = [demand for demand in snapshot.demand if (demand.queue, demand.lane) == (job.queue, job.lane)]
    for demand in lane:
        if left > 0 and demand.priority <= job.priority:
            jobs = min(left, demand.jobs)
            left -= jobs
            found.append(_calls_of_lane(job, jobs, demand.needs, snapshot))
    if left > 0:
        found.append(CallGroup(float(left)))
    return found


def _calls_of_lane(job: Job, jobs: int, needs: tuple[Need, ...], snapshot: StoreSnapshot) -> CallGroup:
    """Returns the calls of the `jobs` jobs that are ahead of `job` in its lane. For a batch task, only full
    batches count."""
    work = estimate_calls(jobs, needs, job.batching, snapshot.known())
    if job.batching is None:
        return work
    return CallGroup(float(jobs // job.batching.max_items), work.needs)


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job waits, or what became of it.

    - `sentence`: the whole explanation as text.
    - `causes`: the most blocking cause first.
    - `code`, `details`: those of the first cause.
    - `starts_at`: the expected start as wall time; None if it is unknown or the job does not wait."""

    job: str
    queue: str
    task: str
    state: State
    code: CauseCode
    sentence: str
    details: dict[str, Any]
    causes: tuple[Cause, ...]
    starts_at: float | None = None

    def __str__(self) -> str:
        return self.sentence


def explain(facts: ExplanationInputs, zone: tzinfo | None = None) -> Explanation:
    """Returns the explanation of a job, from its loaded facts. Times in the text are in `zone`, or in the
    machine's time zone if `zone` is None."""
    job, times = facts.job, TimeFormatter(facts.now.wall, zone)
    causes = _find_causes(facts, times)
    sentences = [cause.sentence for cause in causes]
    start = estimate_start(facts)
    expected = None if start is None else start.at
    sentences += [_deferred_text(need) for need in job.deferred_needs if job.state in PENDING]
    if start is not None and start.at > times.now and (job.needs or job.deferred_needs or job.batching):
        sentences.append(_start_text(start, causes, times))
    if job.state in PENDING and job.expires is not None and job.expires > times.now:
        sentences.append(f"Unless it starts before, it is cancelled {times.in_future(job.expires)}.")
    if job.flow is not None:
        sentences.append(f"It is job {job.flow.index} of step {job.flow.step!r} of flow {job.flow.id!r}.")
    return Explanation(
        job=job.id,
        queue=job.queue,
        task=job.task,
        state=job.state,
        code=causes[0].code,
        sentence=" ".join(sentences),
        details=causes[0].details,
        causes=causes,
        starts_at=expected,
    )


def _start_text(start: StartEstimate, causes: tuple[Cause, ...], times: TimeFormatter) -> str:
    """Returns a sentence that says when the job is expected to start. It names the slowest limit, unless one
    of the `causes` already names this limit."""
    named = {tuple(cause.details.get(part) for part in ("pool", "key", "limit")) for cause in causes}
    by = start.by
    if by is None or (by.pool, by.key, by.name) in named:
        return f"It is expected to start {times.in_future(start.at)}."
    return (
        f"It is expected to start {times.in_future(start.at)}; until then it is {by} that holds it up most."
    )


def _deferred_text(need: Need) -> str:
    units = " and ".join(
        format_quantity(amount, unit) for unit, amount in need.units.items() if unit not in IMPLIED
    )
    return f"While it ran it asked the pool {need.name} for {units or 'a call'} more, which it waits for."


def _find_causes(facts: ExplanationInputs, times: TimeFormatter) -> tuple[Cause, ...]:
    if facts.job.state is State.RUNNING:
        return (running_cause(facts, times),)
    if facts.job.state not in PENDING:
        return (finished_cause(facts, times),)
    waits_for = sorted(find_wait_causes(facts, times), key=_blocking_order)
    return tuple(waits_for) or (next_in_turn_cause(facts, times),)


_MANUAL_CODES = (
    CauseCode.PAUSED,
    CauseCode.NO_WORKER,
    CauseCode.UNKNOWN_TASK,
    CauseCode.POOL_CLOSED,
    CauseCode.POOL_TRIPPED,
    CauseCode.POOL_TOO_SMALL,
)
"""Causes that last until someone acts."""


def _blocking_order(cause: Cause) -> tuple[int, float]:
    if cause.code is CauseCode.EXPIRED:
        return (0, 0.0)
    until = cause.details.get("until")
    if until is not None:
        return (2, -float(until))
    if cause.code in _MANUAL_CODES:
        return (1, 0.0)
    return (3, 0.0)
