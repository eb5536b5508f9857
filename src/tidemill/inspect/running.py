"""What a running job does."""

from __future__ import annotations

from tidemill.inspect.causes import Cause, Code
from tidemill.inspect.facts import Facts
from tidemill.inspect.words import Times, duration


def describe_run(facts: Facts, times: Times) -> Cause:
    job, worker = facts.job, facts.worker
    started = times.now if job.started is None else job.started
    details = {
        "worker": job.worker,
        "host": None if worker is None else worker.host,
        "pid": None if worker is None else worker.pid,
        "since": started,
        "attempt": job.attempts + 1,
        "progress": job.progress,
        "note": job.note,
        "timeout": facts.timeout,
    }
    where = f"worker {job.worker}" if worker is None else f"worker {worker.id} ({worker.host}, {worker.pid})"
    sentence = (
        f"Attempt {job.attempts + 1} has been running on {where} for {duration(times.now - started)}, since "
        f"{times.at(started)}{_progress(facts)}."
    )
    if worker is None:
        return Cause(Code.WORKER_SILENT, f"{sentence} {_silence(facts)}", details)
    return Cause(Code.RUNNING, sentence + _timeout(facts, started, times), details)


def _progress(facts: Facts) -> str:
    job = facts.job
    share = "" if job.progress is None else f"; {job.progress:.0%} done"
    return f"{share}; it says {job.note!r}" if job.note else share


def _timeout(facts: Facts, started: float, times: Times) -> str:
    if facts.timeout is None:
        return ""
    end = started + facts.timeout
    if end <= times.now:
        return f" Its timeout of {duration(facts.timeout)} is over: it is about to be stopped."
    return f" Its timeout ends {times.ahead(end)}."


def _silence(facts: Facts) -> str:
    left = facts.job.lease - facts.now.boot
    lease = f"when its lease ends in {duration(left)}" if left > 0 else "as soon as any worker looks"
    return f"No worker of that name reports: if it has died, the job goes to another {lease}."
