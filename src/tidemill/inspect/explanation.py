"""Why a job waits, or what it does: a pure function of facts.

Several causes may hold at once, and ending one of them does not start the job. All are told,
the one most in the way first: what only a person ends, then what ends at a time (the latest
first), then what ends by itself as other jobs do.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import tzinfo
from enum import StrEnum
from typing import Any

import msgspec

from tidemill.contract.reader import AHEAD_COUNTED
from tidemill.core.job import Error
from tidemill.core.states import PENDING, State
from tidemill.core.transitions import POISON, UNKNOWN_TASK_PATIENCE, is_expired
from tidemill.inspect.facts import Facts
from tidemill.inspect.words import duration, moment, plural


class Code(StrEnum):
    """Causes, for programs. A code stays what it means; new ones may be added."""

    EXPIRED = "expired"  # past its expiry: it is cancelled instead of started
    PAUSED = "paused"  # somebody paused the queue
    UNSERVED = "unserved"  # no living worker serves the queue
    UNKNOWN_TASK = "unknown_task"  # the workers that were offered it do not know its task
    SCHEDULED = "scheduled"  # it was enqueued for later
    RETRYING = "retrying"  # its last attempt failed, and it waits before the next
    SNOOZED = "snoozed"  # its handler put it off
    PREDECESSOR = "predecessor"  # it runs when the job before it with the same unique key has ended
    QUEUE_LIMIT = "queue_limit"  # as many jobs of the queue run as may
    KEY_LIMIT = "key_limit"  # as many jobs of its key run as may
    WORKERS_BUSY = "workers_busy"  # every worker that serves the queue has its hands full
    BEHIND = "behind"  # others of its lane start first
    NEXT = "next"  # nothing is in its way
    RUNNING = "running"
    WORKER_SILENT = "worker_silent"  # running, as far as is known: its worker no longer reports
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Cause(msgspec.Struct, frozen=True):
    """`details` are the facts behind the sentence, ready for JSON; times are wall times."""

    code: Code
    sentence: str
    details: dict[str, Any]


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """`code` and `details` are those of the first of `causes`; `sentence` tells all of them."""

    job: str
    queue: str
    task: str
    state: State
    code: Code
    sentence: str
    details: dict[str, Any]
    causes: tuple[Cause, ...]

    def __str__(self) -> str:
        return self.sentence


def explain(facts: Facts, zone: tzinfo | None = None) -> Explanation:
    """Times in sentences are of `zone`, the machine's own when it is None."""
    tell = _Teller(facts, zone)
    job = facts.job
    if job.state in PENDING:
        causes = tuple(sorted(tell.waiting(), key=_blocks_longest)) or (tell.next(),)
    elif job.state is State.RUNNING:
        causes = (tell.running(),)
    else:
        causes = (tell.ended(),)
    first = causes[0]
    return Explanation(
        job=job.id,
        queue=job.queue,
        task=job.task,
        state=job.state,
        code=first.code,
        sentence=" ".join(cause.sentence for cause in causes),
        details=first.details,
        causes=causes,
    )


_BY_PERSON = (Code.UNKNOWN_TASK, Code.UNSERVED)
_BY_TIME = (Code.PAUSED, Code.SCHEDULED, Code.RETRYING, Code.SNOOZED)


def _blocks_longest(cause: Cause) -> tuple[int, float]:
    if cause.code is Code.EXPIRED:
        return (0, 0.0)
    if cause.code in _BY_PERSON or (cause.code is Code.PAUSED and cause.details["until"] is None):
        return (1, 0.0)
    if cause.code in _BY_TIME:
        return (2, -float(cause.details["until"]))
    return (3, 0.0)


class _Teller:
    """Sentences about one job, all with the same idea of now."""

    def __init__(self, facts: Facts, zone: tzinfo | None) -> None:
        self.facts, self.job, self.zone = facts, facts.job, zone
        self.now = facts.now.wall

    def waiting(self) -> Iterator[Cause]:
        """Everything that keeps a pending job from starting, in the order of telling among equals."""
        job, facts = self.job, self.facts
        if is_expired(job, self.now):
            yield self._expired()
        if facts.queue.pause is not None and facts.queue.pause.closed(self.now):
            yield self._paused()
        if not facts.workers:
            yield self._unserved()
        if job.state is State.WAITING:
            yield self._predecessor()
        elif job.unknown_for > 0:
            yield self._unknown_task()
        elif job.state is State.SCHEDULED and job.due > self.now:
            yield self._postponed()
        if job.state is State.READY or job.due <= self.now:
            yield from self._crowded()

    def _crowded(self) -> Iterator[Cause]:
        """What ends by itself as other jobs end."""
        facts, settings = self.facts, self.facts.queue.settings
        if settings.concurrency is not None and facts.running >= settings.concurrency:
            yield self._queue_limit(settings.concurrency)
        if settings.key_concurrency is not None and facts.running_in_lane >= settings.key_concurrency:
            yield self._key_limit(settings.key_concurrency)
        if facts.workers and all(worker.holds >= worker.concurrency for worker in facts.workers):
            yield self._workers_busy()
        if facts.ahead:
            yield self._behind(facts.ahead)

    def _expired(self) -> Cause:
        expires = self.job.expires or 0.0
        return Cause(
            Code.EXPIRED,
            f"The job expired {self._past(expires)}: it will be cancelled instead of started.",
            {"expires": expires},
        )

    def _paused(self) -> Cause:
        queue, pause = self.facts.queue, self.facts.queue.pause
        assert pause is not None  # noqa: S101 - asked by waiting
        end = "until it is resumed" if pause.until is None else f"and resumes {self._future(pause.until)}"
        why = f" The reason given is: {_stop(pause.reason)}" if pause.reason else ""
        return Cause(
            Code.PAUSED,
            f"The queue {queue.name!r} has been paused since {self._at(pause.since)} {end}.{why}",
            {"queue": queue.name, "since": pause.since, "until": pause.until, "reason": pause.reason},
        )

    def _unserved(self) -> Cause:
        return Cause(
            Code.UNSERVED,
            f"No living worker serves the queue {self.job.queue!r}: start one that does.",
            {"queue": self.job.queue},
        )

    def _unknown_task(self) -> Cause:
        job, left = self.job, max(0.0, UNKNOWN_TASK_PATIENCE - self.job.unknown_for)
        here = (
            "this program knows it, so some worker runs other code"
            if self.facts.known
            else "check its name, and deploy the code that has it"
        )
        return Cause(
            Code.UNKNOWN_TASK,
            f"The workers that were offered the job do not know the task {job.task!r}: {here}. They have put "
            f"it off for {duration(job.unknown_for)} so far; after {duration(left)} more it fails.",
            {
                "task": job.task,
                "known_here": self.facts.known,
                "unknown_for": job.unknown_for,
                "until": max(job.due, self.now),
            },
        )

    def _postponed(self) -> Cause:
        job = self.job
        if job.error is not None and job.attempts > 0 and self._failed_last():
            return self._retrying(job.error)
        if job.started is not None and job.attempts == self._attempts_before():
            return self._snoozed()
        return Cause(
            Code.SCHEDULED,
            f"The job is scheduled to start {self._future(job.due)}.",
            {"until": job.due},
        )

    def _failed_last(self) -> bool:
        """Whether the run that put it off failed; a handler may also have snoozed after a failure."""
        last = self.facts.last
        return last is None or self.job.started is None or last.ended >= self.job.started

    def _attempts_before(self) -> int:
        last = self.facts.last
        return 0 if last is None or last.generation != self.job.generation else last.attempt

    def _retrying(self, error: Error) -> Cause:
        job, allowed = self.job, self.facts.attempts
        of = f" of {allowed}" if allowed is not None and allowed >= job.attempts else ""
        return Cause(
            Code.RETRYING,
            f"Attempt {job.attempts}{of} failed with {_what(error)} The next starts {self._future(job.due)}.",
            {"until": job.due, "attempts": job.attempts, "allowed": allowed, "error": _error(error)},
        )

    def _snoozed(self) -> Cause:
        job = self.job
        return Cause(
            Code.SNOOZED,
            f"Its handler put the job off; it starts again {self._future(job.due)}.",
            {"until": job.due, "attempts": job.attempts},
        )

    def _predecessor(self) -> Cause:
        job, before = self.job, self.facts.predecessor
        state = "is gone" if before is None else f"is {before.state}"
        if before is not None and before.state is State.RUNNING and before.started is not None:
            state += f" on {before.worker} since {self._at(before.started)}"
        return Cause(
            Code.PREDECESSOR,
            f"The job starts when job {job.after}, before it with the unique key {job.unique_key!r}, has "
            f"ended; that one {state}.",
            {
                "predecessor": job.after,
                "unique_key": job.unique_key,
                "state": None if before is None else before.state.value,
            },
        )

    def _queue_limit(self, limit: int) -> Cause:
        runs = plural(self.facts.running, "job of the queue runs", "jobs of the queue run")
        return Cause(
            Code.QUEUE_LIMIT,
            f"{runs}, and {self.job.queue!r} allows {limit} at once: it starts when one of them ends.",
            {"queue": self.job.queue, "running": self.facts.running, "concurrency": limit},
        )

    def _key_limit(self, limit: int) -> Cause:
        running, whose = self.facts.running_in_lane, f"with the key {self.job.lane!r}"
        return Cause(
            Code.KEY_LIMIT,
            f"{plural(running, f'job {whose} runs', f'jobs {whose} run')}, and "
            f"{self.job.queue!r} allows {limit} per key at once: it starts when one of them ends.",
            {"key": self.job.lane, "running": running, "key_concurrency": limit},
        )

    def _workers_busy(self) -> Cause:
        workers = self.facts.workers
        slots, names = sum(worker.concurrency for worker in workers), [worker.id for worker in workers]
        return Cause(
            Code.WORKERS_BUSY,
            f"All {plural(slots, 'slot')} of the {plural(len(workers), 'worker')} that serve "
            f"{self.job.queue!r} are taken.",
            {"workers": names, "slots": slots},
        )

    def _behind(self, ahead: int) -> Cause:
        more = "At least " if ahead >= AHEAD_COUNTED else ""
        whose = f"with the key {self.job.lane!r}" if self.job.lane else "of the queue without a key"
        return Cause(
            Code.BEHIND,
            f"{more}{plural(ahead, f'job {whose} starts', f'jobs {whose} start')} before it.",
            {
                "ahead": ahead,
                "counted_all": ahead < AHEAD_COUNTED,
                "key": self.job.lane or None,
                "ready": self.facts.ready,
            },
        )

    def next(self) -> Cause:
        job = self.job
        return Cause(
            Code.NEXT,
            f"Nothing is in the way of the job: it could start since {self._at(job.due)}, and "
            f"{plural(len(self.facts.workers), 'worker serves', 'workers serve')} its queue.",
            {"since": job.due, "ready": self.facts.ready},
        )

    def running(self) -> Cause:
        job = self.job
        started = self.now if job.started is None else job.started
        details = {
            "worker": job.worker,
            "host": None if self.facts.worker is None else self.facts.worker.host,
            "pid": None if self.facts.worker is None else self.facts.worker.pid,
            "since": started,
            "attempt": job.attempts + 1,
            "progress": job.progress,
            "note": job.note,
            "timeout": self.facts.timeout,
        }
        sentence = (
            f"Attempt {job.attempts + 1} has been running {self._where()} for "
            f"{duration(self.now - started)}, since {self._at(started)}{self._progress()}."
        )
        if self.facts.worker is None:
            return Cause(Code.WORKER_SILENT, f"{sentence} {self._silence()}", details)
        return Cause(Code.RUNNING, sentence, details)

    def _where(self) -> str:
        worker = self.facts.worker
        if worker is None:
            return f"on worker {self.job.worker}"
        return f"on worker {worker.id} ({worker.host}, process {worker.pid})"

    def _progress(self) -> str:
        job = self.job
        share = None if job.progress is None else f"{job.progress:.0%} done"
        said = ", ".join(part for part in (share, job.note and f"it says {job.note!r}") if part)
        return f", {said}" if said else ""

    def _silence(self) -> str:
        left = self.job.lease - self.facts.now.boot
        lease = f"when its lease ends in {duration(left)}" if left > 0 else "as soon as any worker looks"
        return f"No worker of that name reports: if it has died, the job goes to another {lease}."

    def ended(self) -> Cause:
        job = self.job
        finished = self.now if job.finished is None else job.finished
        code = Code(job.state.value)
        details = {
            "at": finished,
            "attempts": job.attempts,
            "reason": job.reason,
            "error": None if job.error is None else _error(job.error),
        }
        return Cause(code, f"{self._end(code)} {self._past(finished)}{self._why(code)}", details)

    def _end(self, code: Code) -> str:
        after = plural(self.job.attempts, "attempt")
        if code is Code.CANCELLED:
            return "The job was cancelled"
        if self.job.attempts == 0:
            return "The job failed without an attempt that ended"
        return f"The job {'is done, it succeeded' if code is Code.DONE else 'failed for good'} after {after}"

    def _why(self, code: Code) -> str:
        job = self.job
        if code is Code.CANCELLED:
            return f": {_stop(job.reason or 'no reason was given')}"
        if code is Code.DONE:
            return "."
        error = f" with {_what(job.error)}" if job.error is not None else ""
        if job.reason == POISON:
            return f": it crashed {plural(job.crashes, 'time')}, the last{error or '.'}"
        if job.reason is not None and job.reason != "failed":
            return f": {_stop(job.reason + error)}"
        return error or "."

    def _at(self, wall: float) -> str:
        return moment(wall, self.zone)

    def _future(self, wall: float) -> str:
        return f"in {duration(wall - self.now)}, at {self._at(wall)}"

    def _past(self, wall: float) -> str:
        return f"{duration(self.now - wall)} ago, at {self._at(wall)}"


def _what(error: Error) -> str:
    return _stop(f"{error.type}: {error.message}" if error.message else error.type)


def _stop(text: str) -> str:
    """As the end of a sentence."""
    return text if text.endswith((".", "!", "?", "。")) else f"{text}."


def _error(error: Error) -> dict[str, str]:
    return {"type": error.type, "message": error.message}
