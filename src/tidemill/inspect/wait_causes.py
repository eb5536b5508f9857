"""Finds the causes that keep a pending job from starting."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.contract.reader import MAX_AHEAD_COUNTED, WorkerInfo
from tidemill.core.jobs import Error
from tidemill.core.queues import Pause
from tidemill.core.states import State
from tidemill.core.transitions import UNKNOWN_TASK_SECONDS, is_expired
from tidemill.inspect.causes import Cause, CauseCode, error_data, format_error
from tidemill.inspect.explanation_inputs import ExplanationInputs
from tidemill.inspect.formatting import TimeFormatter, as_sentence, format_duration, pluralize
from tidemill.inspect.pool_waits import find_pool_causes


def find_wait_causes(facts: ExplanationInputs, times: TimeFormatter) -> Iterator[Cause]:
    """Yields all causes that keep a pending job from starting. Of two causes that block equally, the first
    one is shown first."""
    job, pause = facts.job, facts.queue.pause
    if is_expired(job, times.now):
        yield _expired_cause(facts, times)
    if pause is not None and pause.closed(times.now):
        yield _paused_cause(facts, pause, times)
    if not facts.workers:
        yield _no_worker_cause(facts)
    if job.state is State.WAITING:
        yield _predecessor_cause(facts, times)
    if job.unknown_for > 0:
        yield _unknown_task_cause(facts, times)
    elif job.state is not State.READY and job.due > times.now:
        yield _scheduled_cause(facts, times)
    if job.state is State.READY or (job.state is State.SCHEDULED and job.due <= times.now):
        yield from find_pool_causes(facts, times)
        yield from _concurrency_causes(facts, times)


def next_in_turn_cause(facts: ExplanationInputs, times: TimeFormatter) -> Cause:
    serve = pluralize(len(facts.workers), "worker serves", "workers serve")
    return Cause(
        CauseCode.NEXT,
        f"Nothing is in the way of the job: it could start since {times.clock_time(facts.job.due)}, and "
        f"{serve} its queue.",
        {"since": facts.job.due, "ready": facts.ready},
    )


def _expired_cause(facts: ExplanationInputs, times: TimeFormatter) -> Cause:
    expires = facts.job.expires or 0.0
    return Cause(
        CauseCode.EXPIRED,
        f"The job expired {times.in_past(expires)}: it will be cancelled instead of started.",
        {"expires": expires},
    )


def _paused_cause(facts: ExplanationInputs, pause: Pause, times: TimeFormatter) -> Cause:
    queue = facts.queue.name
    end = "until it is resumed" if pause.until is None else f"and resumes {times.in_future(pause.until)}"
    why = f" The reason given is: {as_sentence(pause.reason)}" if pause.reason else ""
    return Cause(
        CauseCode.PAUSED,
        f"The queue {queue!r} has been paused since {times.clock_time(pause.since)} {end}.{why}",
        {"queue": queue, "since": pause.since, "until": pause.until, "reason": pause.reason},
    )


def _no_worker_cause(facts: ExplanationInputs) -> Cause:
    queue = facts.job.queue
    return Cause(
        CauseCode.NO_WORKER,
        f"No living worker serves the queue {queue!r}: start one that does.",
        {"queue": queue},
    )


def _unknown_task_cause(facts: ExplanationInputs, times: TimeFormatter) -> Cause:
    job, left = facts.job, max(0.0, UNKNOWN_TASK_SECONDS - facts.job.unknown_for)
    remedy = (
        "this program does, so they run other code" if facts.task_known else "start one whose code has it"
    )
    last = f" (the last was {job.worker})" if job.worker else ""
    next_offer = f" It is offered again {times.in_future(job.due)}." if job.due > times.now else ""
    return Cause(
        CauseCode.UNKNOWN_TASK,
        f"The workers it was offered to{last} do not know the task {job.task!r}: {remedy}. They have put it "
        f"off for {format_duration(job.unknown_for)} so far; after {format_duration(left)} more it "
        f"fails.{next_offer}",
        {
            "task": job.task,
            "worker": job.worker,
            "known_here": facts.task_known,
            "unknown_for": job.unknown_for,
            "offered": job.due,
        },
    )


def _predecessor_cause(facts: ExplanationInputs, times: TimeFormatter) -> Cause:
    job, before = facts.job, facts.predecessor
    state = "is gone" if before is None else f"is {before.state}"
    if before is not None and before.state is State.RUNNING and before.started is not None:
        state += f" on worker {before.worker} since {times.clock_time(before.started)}"
    return Cause(
        CauseCode.PREDECESSOR,
        f"The job starts when job {job.after}, before it with the unique key {job.unique_key!r}, has ended; "
        f"that one {state}.",
        {
            "predecessor": job.after,
            "unique_key": job.unique_key,
            "state": None if before is None else before.state.value,
        },
    )


def _scheduled_cause(facts: ExplanationInputs, times: TimeFormatter) -> Cause:
    """Returns the cause for a job that is due later: a retry, a snooze, or a start time."""
    job, start = facts.job, times.in_future(facts.job.due)
    if _has_failed_last(facts):
        if job.attempts > 0 and job.error is not None:
            return _retry_cause(facts, job.error, times)
    elif job.started is not None:
        why = f" ({job.note})" if job.note else ""
        sentence = f"Its handler put the job off{why}; it starts again {start}."
        return Cause(
            CauseCode.SNOOZED, sentence, {"until": job.due, "attempts": job.attempts, "note": job.note}
        )
    return Cause(CauseCode.SCHEDULED, f"The job is scheduled to start {start}.", {"until": job.due})


def _has_failed_last(facts: ExplanationInputs) -> bool:
    """True if the last run of the job failed. False if the handler snoozed the job in its last run, even if
    an earlier run failed."""
    job, last = facts.job, facts.last_attempt
    if last is None or last.generation != job.generation or job.started is None:
        return False
    return last.ended >= job.started


def _retry_cause(facts: ExplanationInputs, error: Error, times: TimeFormatter) -> Cause:
    job, allowed = facts.job, facts.attempts
    of = f" of {allowed}" if allowed is not None and allowed >= job.attempts else ""
    return Cause(
        CauseCode.RETRYING,
        f"Attempt {job.attempts}{of} failed with {format_error(error)} "
        f"The next starts {times.in_future(job.due)}.",
        {"until": job.due, "attempts": job.attempts, "allowed": allowed, "error": error_data(error)},
    )


def _concurrency_causes(facts: ExplanationInputs, times: TimeFormatter) -> Iterator[Cause]:
    """Yields the causes that end when other jobs finish or arrive: batches, concurrency limits, busy workers,
    jobs ahead."""
    settings = facts.queue.settings
    if facts.batch_due > 0:
        yield _batch_wait_cause(facts, times)
    if settings.concurrency is not None and facts.running >= settings.concurrency:
        yield _queue_limit_cause(facts, settings.concurrency)
    if settings.key_concurrency is not None and facts.running_in_lane >= settings.key_concurrency:
        yield _key_limit_cause(facts, settings.key_concurrency)
    if facts.workers and all(worker.holds >= worker.concurrency for worker in facts.workers):
        yield _workers_busy_cause(facts.workers, facts.job.queue)
    if facts.ahead:
        yield _behind_cause(facts, facts.ahead)


def _batch_wait_cause(facts: ExplanationInputs, times: TimeFormatter) -> Cause:
    most = facts.job.batching.max_items if facts.job.batching else 0
    until = times.now + facts.batch_due
    return Cause(
        CauseCode.BATCH_WAIT,
        f"The job waits for others to share a call with, up to {most}; the call is made with those there are "
        f"{times.in_future(until)}.",
        {"until": until, "max_items": most},
    )


def _queue_limit_cause(facts: ExplanationInputs, limit: int) -> Cause:
    runs = pluralize(facts.running, "job of the queue runs", "jobs of the queue run")
    return Cause(
        CauseCode.QUEUE_LIMIT,
        f"{runs}, and {facts.job.queue!r} allows {limit} at once: the next starts when one ends.",
        {"queue": facts.job.queue, "running": facts.running, "concurrency": limit},
    )


def _key_limit_cause(facts: ExplanationInputs, limit: int) -> Cause:
    running, jobs = facts.running_in_lane, f"with the key {facts.job.key!r}"
    return Cause(
        CauseCode.KEY_LIMIT,
        f"{pluralize(running, f'job {jobs} runs', f'jobs {jobs} run')}, and {facts.job.queue!r} allows "
        f"{limit} per key at once: the next starts when one ends.",
        {"key": facts.job.key, "running": running, "key_concurrency": limit},
    )


def _workers_busy_cause(workers: tuple[WorkerInfo, ...], queue: str) -> Cause:
    slots = sum(worker.concurrency for worker in workers)
    taken = "The only slot" if slots == 1 else f"All {slots} slots"
    servers = pluralize(len(workers), "worker that serves", "workers that serve")
    return Cause(
        CauseCode.WORKERS_BUSY,
        f"{taken} of the {servers} {queue!r} {'is' if slots == 1 else 'are'} taken.",
        {"workers": [worker.id for worker in workers], "slots": slots},
    )


def _behind_cause(facts: ExplanationInputs, ahead: int) -> Cause:
    key = facts.job.key
    more = "At least " if ahead >= MAX_AHEAD_COUNTED else ""
    description = f"with the key {key!r}" if key else "of its queue without a key"
    if facts.job.needs or facts.job.deferred_needs:
        description += ", of the same pools,"
    jobs = pluralize(ahead, f"job {description} starts", f"jobs {description} start")
    details = {"ahead": ahead, "counted_all": not more, "key": key or None, "ready": facts.ready}
    return Cause(CauseCode.BEHIND, f"{more}{jobs} before it.", details)
