"""What a running job does."""

from __future__ import annotations

from typing import Any

import msgspec

from tidemill.inspect.causes import Cause, Code
from tidemill.inspect.facts import AwaitedResult, Facts
from tidemill.inspect.words import Times, duration

QUIET = 3.0
"""Seconds. Shorter silences say nothing: a worker reports every ten, and with most of its claims."""


def describe_run(facts: Facts, times: Times) -> Cause:
    job, worker = facts.job, facts.worker
    started = times.now if job.started is None else job.started
    details: dict[str, Any] = {
        "worker": job.worker,
        "host": None if worker is None else worker.host,
        "pid": None if worker is None else worker.pid,
        "seen": None if worker is None else worker.seen,
        "since": started,
        "attempt": job.attempts + 1,
        "progress": job.progress,
        "note": job.note,
        "timeout": facts.timeout,
    }
    if facts.waits_for:
        details["waits_for"] = [msgspec.structs.asdict(each) for each in facts.waits_for]
    where = f"worker {job.worker}" if worker is None else f"worker {worker.id} ({worker.host}, {worker.pid})"
    sentence = (
        f"Attempt {job.attempts + 1} has been running on {where} for {duration(times.now - started)}, since "
        f"{times.at(started)}{_progress(facts)}.{_waits(facts)}"
    )
    if worker is None:
        return Cause(Code.WORKER_SILENT, f"{sentence} {_silence(facts)}", details)
    heard = _last_heard(worker.seen, times)
    return Cause(Code.RUNNING, sentence + _timeout(facts, started, times) + heard, details)


def _progress(facts: Facts) -> str:
    job = facts.job
    share = "" if job.progress is None else f"; {job.progress:.0%} done"
    return f"{share}; it says {job.note!r}" if job.note and not facts.waits_for else share


def _waits(facts: Facts) -> str:
    """Its worker has written it into the note, see `core.waits`."""
    if not facts.waits_for:
        return ""
    return f" It waits for the result of {', '.join(map(_awaited, facts.waits_for))}."


def _awaited(result: AwaitedResult) -> str:
    queue = "" if result.queue is None else f"queue {result.queue!r}, "
    return f"{result.kind} {result.id} ({queue}{result.state or 'gone'})"


def _timeout(facts: Facts, started: float, times: Times) -> str:
    if facts.timeout is None:
        return ""
    end = started + facts.timeout
    if end <= times.now:
        return f" Its timeout of {duration(facts.timeout)} is over: it is about to be stopped."
    return f" Its timeout ends {times.ahead(end)}."


def _last_heard(seen: float, times: Times) -> str:
    """A worker that was killed counts as working until its lease ends: people see sooner that it is quiet."""
    if times.now - seen < QUIET:
        return ""
    return f" Its worker was last heard of {duration(times.now - seen)} ago."


def _silence(facts: Facts) -> str:
    left = facts.job.lease - facts.now.boot
    lease = f"when its lease ends in {duration(left)}" if left > 0 else "as soon as any worker looks"
    return f"No worker of that name reports: if it has died, the job goes to another {lease}."
