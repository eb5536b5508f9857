"""Is a queue served, and does it keep up?"""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.cli.doctor.finding import Finding, Level
from tidemill.cli.doctor.workers import start_one
from tidemill.cli.output import moment
from tidemill.cli.target import Target
from tidemill.contract.reader import Minute
from tidemill.core.states import PENDING, State
from tidemill.inspect.views import Overview, QueueView
from tidemill.inspect.words import duration, plural

LATE = 60.0
"""A worker with a free slot promotes and starts a job within a second or so of its due time."""

LOOKED_BACK = 600.0
PATIENCE = 1800.0
"""A backlog that takes longer than this at the current rate is worth a word."""

_FASTER = "more workers, more --concurrency, or a higher limit of the queue make it shorter"


def trouble(view: QueueView, overview: Overview, recent: Sequence[Minute], target: Target) -> Finding | None:
    """What is most in the way of a queue's jobs; None when nothing is."""
    overdue = max(0.0, overview.now - view.next_due) if view.next_due is not None else 0.0
    if not any(view.counts[state] for state in PENDING):
        return None
    if view.pause is not None:  # first: it waits on purpose, whoever would serve it
        return _paused(view, target)
    if overview.workers and not view.workers:
        return finding(view, "bad", "no worker serves it", "add it to a worker's --queues")
    if not overview.workers:
        waits = view.counts[State.READY] or overdue > LATE
        return finding(view, "bad", "no worker is running", start_one(target)) if waits else None
    ended = sum(minute.done + minute.failed for minute in recent)
    return _pace(view, overview, ended, overdue, target)


def _pace(view: QueueView, overview: Overview, ended: int, overdue: float, target: Target) -> Finding | None:
    """Workers that are busy may be late; idle ones may not. `ended` jobs are those of the last minutes."""
    busy = _is_busy(view, overview)
    ready, latency = view.counts[State.READY], view.latency or 0.0
    if overdue > LATE and not busy:
        return finding(
            view,
            "bad",
            f"a scheduled job is overdue by {duration(overdue)}, and its workers have free slots",
            "they are stuck or cannot write: look at their logs, and start them again",
        )
    if latency > LATE and not (busy or ended or view.counts[State.RUNNING]):
        if (waits := _for_pools(view, overview)) is not None:
            return finding(view, "note", waits, f"look: {target.command('pools')}")
        return finding(
            view,
            "bad",
            f"{plural(ready, 'job')} could have started {duration(latency)} ago, and none did",
            f"ask why: {target.command('explain', 'ID')}, with one of "
            f"{target.command('jobs', '--queue', view.name, '--state', 'ready')}",
        )
    if ended and (takes := ready * LOOKED_BACK / ended) > PATIENCE:
        rate = f"{ended * 60 / LOOKED_BACK:.3g} a minute, the rate of the last ten minutes"
        return finding(view, "note", f"the backlog takes {duration(takes)} at {rate}", _FASTER)
    if busy and not ended and max(overdue, latency) > LATE:
        waited = f"and jobs have waited for {duration(max(overdue, latency))}"
        return finding(
            view, "note", f"every slot is taken, none ended in the last ten minutes, {waited}", _FASTER
        )
    return None


def _for_pools(view: QueueView, overview: Overview) -> str | None:
    """Where nothing ended only pools have a forecast; one that lets its jobs in now is no excuse."""
    if view.forecast is None:
        return None
    done = view.forecast.done_at
    if done is None:
        return "they wait for a pool that only a person opens"
    return f"they wait for their pools, done {moment(done)}" if done > overview.now + LATE else None


def _is_busy(view: QueueView, overview: Overview) -> bool:
    """Nothing more of it can start: the workers that serve it are full, or the queue is at its limit."""
    serving = [worker for worker in overview.workers if view.name in worker.queues]
    limit = view.settings.concurrency
    full = all(worker.holds >= worker.concurrency for worker in serving)
    return full or (limit is not None and view.counts[State.RUNNING] >= limit)


def _paused(view: QueueView, target: Target) -> Finding:
    pause = view.pause
    why = f" ({pause.reason})" if pause and pause.reason else ""
    end = f" until {moment(pause.until)}" if pause and pause.until else ""
    return finding(
        view, "note", f"paused{end}{why}", f"to go on: {target.command('queues', 'resume', view.name)}"
    )


def finding(view: QueueView, level: Level, says: str = "", remedy: str | None = None) -> Finding:
    pending = sum(view.counts[state] for state in PENDING)
    holds = f"{pending} pending, {view.counts[State.RUNNING]} running, {view.counts[State.FAILED]} failed"
    return Finding(
        about=f"queue {view.name}", level=level, says=f"{holds}; {says}" if says else holds, remedy=remedy
    )
