"""What keeps a pending job from starting."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.contract.reader import AHEAD_COUNTED, WorkerInfo
from tidemill.core.job import Error
from tidemill.core.queues import Pause
from tidemill.core.states import State
from tidemill.core.transitions import UNKNOWN_TASK_PATIENCE, is_expired
from tidemill.inspect.causes import Cause, Code, data_of, words_of
from tidemill.inspect.facts import Facts
from tidemill.inspect.metered import causes_of_pools
from tidemill.inspect.words import Times, duration, full_stop, plural


def causes_of_waiting(facts: Facts, times: Times) -> Iterator[Cause]:
    """All of them, in the order of telling among equals."""
    job, pause = facts.job, facts.queue.pause
    if is_expired(job, times.now):
        yield _expired(facts, times)
    if pause is not None and pause.closed(times.now):
        yield _paused(facts, pause, times)
    if not facts.workers:
        yield _unserved(facts)
    if job.state is State.WAITING:
        yield _predecessor(facts, times)
    if job.unknown_for > 0:
        yield _unknown_task(facts, times)
    elif job.state is not State.READY and job.due > times.now:
        yield _postponed(facts, times)
    if job.state is State.READY or (job.state is State.SCHEDULED and job.due <= times.now):
        yield from causes_of_pools(facts, times)
        yield from _crowded(facts, times)


def next_in_turn(facts: Facts, times: Times) -> Cause:
    serve = plural(len(facts.workers), "worker serves", "workers serve")
    return Cause(
        Code.NEXT,
        f"Nothing is in the way of the job: it could start since {times.at(facts.job.due)}, and {serve} its "
        "queue.",
        {"since": facts.job.due, "ready": facts.ready},
    )


def _expired(facts: Facts, times: Times) -> Cause:
    expires = facts.job.expires or 0.0
    return Cause(
        Code.EXPIRED,
        f"The job expired {times.past(expires)}: it will be cancelled instead of started.",
        {"expires": expires},
    )


def _paused(facts: Facts, pause: Pause, times: Times) -> Cause:
    queue = facts.queue.name
    end = "until it is resumed" if pause.until is None else f"and resumes {times.ahead(pause.until)}"
    why = f" The reason given is: {full_stop(pause.reason)}" if pause.reason else ""
    return Cause(
        Code.PAUSED,
        f"The queue {queue!r} has been paused since {times.at(pause.since)} {end}.{why}",
        {"queue": queue, "since": pause.since, "until": pause.until, "reason": pause.reason},
    )


def _unserved(facts: Facts) -> Cause:
    queue = facts.job.queue
    return Cause(
        Code.UNSERVED, f"No living worker serves the queue {queue!r}: start one that does.", {"queue": queue}
    )


def _unknown_task(facts: Facts, times: Times) -> Cause:
    job, left = facts.job, max(0.0, UNKNOWN_TASK_PATIENCE - facts.job.unknown_for)
    remedy = "this program does, so they run other code" if facts.known else "start one whose code has it"
    last = f" (the last was {job.worker})" if job.worker else ""
    again = f" It is offered again {times.ahead(job.due)}." if job.due > times.now else ""
    return Cause(
        Code.UNKNOWN_TASK,
        f"The workers it was offered to{last} do not know the task {job.task!r}: {remedy}. They have put it "
        f"off for {duration(job.unknown_for)} so far; after {duration(left)} more it fails.{again}",
        {
            "task": job.task,
            "worker": job.worker,
            "known_here": facts.known,
            "unknown_for": job.unknown_for,
            "offered": job.due,
        },
    )


def _predecessor(facts: Facts, times: Times) -> Cause:
    job, before = facts.job, facts.predecessor
    state = "is gone" if before is None else f"is {before.state}"
    if before is not None and before.state is State.RUNNING and before.started is not None:
        state += f" on worker {before.worker} since {times.at(before.started)}"
    return Cause(
        Code.PREDECESSOR,
        f"The job starts when job {job.after}, before it with the unique key {job.unique_key!r}, has ended; "
        f"that one {state}.",
        {
            "predecessor": job.after,
            "unique_key": job.unique_key,
            "state": None if before is None else before.state.value,
        },
    )


def _postponed(facts: Facts, times: Times) -> Cause:
    """By whom: a failed attempt, its handler, or whoever enqueued it. A request merged into a job that
    was retrying gives it all its attempts back: then it is only scheduled."""
    job = facts.job
    if _failed_last(facts):
        if job.attempts > 0 and job.error is not None:
            return _retrying(facts, job.error, times)
    elif job.started is not None:
        return Cause(
            Code.SNOOZED,
            f"Its handler put the job off; it starts again {times.ahead(job.due)}.",
            {"until": job.due, "attempts": job.attempts},
        )
    return Cause(Code.SCHEDULED, f"The job is scheduled to start {times.ahead(job.due)}.", {"until": job.due})


def _failed_last(facts: Facts) -> bool:
    """Whether the last run ended in a failure; a handler may also snooze after one."""
    job, last = facts.job, facts.last
    if last is None or last.generation != job.generation or job.started is None:
        return False
    return last.ended >= job.started


def _retrying(facts: Facts, error: Error, times: Times) -> Cause:
    job, allowed = facts.job, facts.attempts
    of = f" of {allowed}" if allowed is not None and allowed >= job.attempts else ""
    return Cause(
        Code.RETRYING,
        f"Attempt {job.attempts}{of} failed with {words_of(error)} The next starts {times.ahead(job.due)}.",
        {"until": job.due, "attempts": job.attempts, "allowed": allowed, "error": data_of(error)},
    )


def _crowded(facts: Facts, times: Times) -> Iterator[Cause]:
    """What ends by itself as other jobs end or come."""
    settings = facts.queue.settings
    if facts.ripe > 0:
        yield _unripe(facts, times)
    if settings.concurrency is not None and facts.running >= settings.concurrency:
        yield _queue_limit(facts, settings.concurrency)
    if settings.key_concurrency is not None and facts.running_in_lane >= settings.key_concurrency:
        yield _key_limit(facts, settings.key_concurrency)
    if facts.workers and all(worker.holds >= worker.concurrency for worker in facts.workers):
        yield _workers_busy(facts.workers, facts.job.queue)
    if facts.ahead:
        yield _behind(facts, facts.ahead)


def _unripe(facts: Facts, times: Times) -> Cause:
    most = facts.job.batching.max_items if facts.job.batching else 0
    until = times.now + facts.ripe
    return Cause(
        Code.UNRIPE,
        f"The job waits for others to share a call with, up to {most}; the call is made with those there are "
        f"{times.ahead(until)}.",
        {"until": until, "max_items": most},
    )


def _queue_limit(facts: Facts, limit: int) -> Cause:
    runs = plural(facts.running, "job of the queue runs", "jobs of the queue run")
    return Cause(
        Code.QUEUE_LIMIT,
        f"{runs}, and {facts.job.queue!r} allows {limit} at once: the next starts when one ends.",
        {"queue": facts.job.queue, "running": facts.running, "concurrency": limit},
    )


def _key_limit(facts: Facts, limit: int) -> Cause:
    running, whose = facts.running_in_lane, f"with the key {facts.job.key!r}"
    return Cause(
        Code.KEY_LIMIT,
        f"{plural(running, f'job {whose} runs', f'jobs {whose} run')}, and {facts.job.queue!r} allows "
        f"{limit} per key at once: the next starts when one ends.",
        {"key": facts.job.key, "running": running, "key_concurrency": limit},
    )


def _workers_busy(workers: tuple[WorkerInfo, ...], queue: str) -> Cause:
    slots = sum(worker.concurrency for worker in workers)
    taken = "The only slot" if slots == 1 else f"All {slots} slots"
    whose = plural(len(workers), "worker that serves", "workers that serve")
    return Cause(
        Code.WORKERS_BUSY,
        f"{taken} of the {whose} {queue!r} {'is' if slots == 1 else 'are'} taken.",
        {"workers": [worker.id for worker in workers], "slots": slots},
    )


def _behind(facts: Facts, ahead: int) -> Cause:
    key = facts.job.key
    more = "At least " if ahead >= AHEAD_COUNTED else ""
    whose = f"with the key {key!r}" if key else "of its queue without a key"
    if facts.job.needs or facts.job.extra:
        whose += ", of the same pools,"
    return Cause(
        Code.BEHIND,
        f"{more}{plural(ahead, f'job {whose} starts', f'jobs {whose} start')} before it.",
        {
            "ahead": ahead,
            "counted_all": ahead < AHEAD_COUNTED,
            "key": key or None,
            "ready": facts.ready,
        },
    )
