"""The doctor's findings about workers, queues and pools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from tidemill.app import Tidemill
from tidemill.cli.formatting import format_closure, format_learned, format_override, format_pool_name
from tidemill.cli.output import format_time
from tidemill.cli.store_options import CommandTarget
from tidemill.contract.reader import QueueMinute, WorkerInfo
from tidemill.core.states import PENDING, State
from tidemill.inspect.formatting import format_duration, pluralize
from tidemill.inspect.pools import PoolStatus
from tidemill.inspect.views import Overview, QueueView

FindingLevel = Literal["ok", "note", "bad"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One result of a check. `level` is "ok", "note" (information) or "bad" (needs action). `remedy` says
    what to do."""

    subject: str
    level: FindingLevel
    message: str
    remedy: str | None = None


def start_worker_hint(target: CommandTarget) -> str:
    return f"start one: {target.worker_command()}"


def check_workers_of_host(workers: Iterable[WorkerInfo], host: str) -> Iterator[Finding]:
    local_workers = [worker for worker in workers if worker.host == host]
    if local_workers:
        yield Finding(
            subject="workers", level="ok", message=f"{pluralize(len(local_workers), 'worker')} of {host}"
        )
    else:
        yield Finding(
            subject="workers",
            level="bad",
            message=f"no worker of {host} is alive",
            remedy="restart it; its jobs are handed back when their leases are over",
        )


def check_workers(overview: Overview, target: CommandTarget) -> Iterator[Finding]:
    workers = overview.workers
    if not workers:
        yield Finding(
            subject="workers", level="note", message="no worker is running", remedy=start_worker_hint(target)
        )
        return
    slots, held = sum(worker.concurrency for worker in workers), sum(worker.holds for worker in workers)
    yield Finding(
        subject="workers",
        level="ok",
        message=f"{pluralize(len(workers), 'worker')} with {pluralize(slots, 'slot')}, {held} taken",
    )


LATE_SECONDS = 60.0
"""A worker with a free slot promotes and starts a job within about a second of its due time."""

RECENT_SECONDS = 600.0
MAX_DRAIN_SECONDS = 1800.0
"""A backlog that takes longer than this at the current rate is reported."""

_FASTER_HINT = "more workers, more --concurrency, or a higher limit of the queue make it shorter"


def check_served(
    view: QueueView, overview: Overview, recent: Sequence[QueueMinute], target: CommandTarget
) -> Finding | None:
    """Returns a finding about the most important problem of the queue's pending jobs, or None if there is no
    problem. `recent`: the queue's counters of the last ten minutes."""
    overdue = max(0.0, overview.now - view.next_due) if view.next_due is not None else 0.0
    if not any(view.counts[state] for state in PENDING):
        return None
    if view.pause is not None:  # checked first: a paused queue waits on purpose
        return _paused_finding(view, target)
    if overview.workers and not view.workers:
        return queue_finding(view, "bad", "no worker serves it", "add it to a worker's --queues")
    if not overview.workers:
        waits = view.counts[State.READY] or overdue > LATE_SECONDS
        return (
            queue_finding(view, "bad", "no worker is running", start_worker_hint(target)) if waits else None
        )
    ended = sum(minute.done + minute.failed for minute in recent)
    return _check_pace(view, overview, ended, overdue, target)


def _check_pace(
    view: QueueView, overview: Overview, ended: int, overdue: float, target: CommandTarget
) -> Finding | None:
    """Returns a finding if jobs start too late or the backlog takes too long; else None.

    - `ended`: the number of jobs that ended in the last ten minutes
    - `overdue`: how many seconds the next scheduled job is late"""
    busy = _is_busy(view, overview)
    ready, latency = view.counts[State.READY], view.latency or 0.0
    if overdue > LATE_SECONDS and not busy:
        return queue_finding(
            view,
            "bad",
            f"a scheduled job is overdue by {format_duration(overdue)}, and its workers have free slots",
            "they are stuck or cannot write: look at their logs, and start them again",
        )
    if latency > LATE_SECONDS and not (busy or ended or view.counts[State.RUNNING]):
        if (waits := _pool_wait_text(view, overview)) is not None:
            return queue_finding(view, "note", waits, f"see: {target.command('pools')}")
        return queue_finding(
            view,
            "bad",
            f"{pluralize(ready, 'job')} could have started {format_duration(latency)} ago, and none did",
            f"explain one: {target.command('explain', 'ID')}, with one of "
            f"{target.command('jobs', '--queue', view.name, '--state', 'ready')}",
        )
    if ended and (drain_seconds := ready * RECENT_SECONDS / ended) > MAX_DRAIN_SECONDS:
        rate = f"{ended * 60 / RECENT_SECONDS:.3g} a minute, the rate of the last ten minutes"
        return queue_finding(
            view, "note", f"the backlog takes {format_duration(drain_seconds)} at {rate}", _FASTER_HINT
        )
    if busy and not ended and max(overdue, latency) > LATE_SECONDS:
        waited = f"and jobs have waited for {format_duration(max(overdue, latency))}"
        return queue_finding(
            view, "note", f"every slot is taken, none ended in the last ten minutes, {waited}", _FASTER_HINT
        )
    return None


def _pool_wait_text(view: QueueView, overview: Overview) -> str | None:
    """Returns a text that says that the queue's jobs wait for pools; None if pools do not delay them much.
    Call it only if no job of the queue ended recently."""
    # Without recent jobs, a forecast can only come from the limits of pools.
    if view.forecast is None:
        return None
    done = view.forecast.done_at
    if done is None:
        return "they wait for a pool that only a person opens"
    return (
        f"they wait for their pools, done {format_time(done)}" if done > overview.now + LATE_SECONDS else None
    )


def _is_busy(view: QueueView, overview: Overview) -> bool:
    """True if no more jobs of the queue can start: its workers are full, or its concurrency limit is
    reached."""
    serving = [worker for worker in overview.workers if view.name in worker.queues]
    limit = view.settings.concurrency
    full = all(worker.holds >= worker.concurrency for worker in serving)
    return full or (limit is not None and view.counts[State.RUNNING] >= limit)


def _paused_finding(view: QueueView, target: CommandTarget) -> Finding:
    pause = view.pause
    why = f" ({pause.reason})" if pause and pause.reason else ""
    end = f" until {format_time(pause.until)}" if pause and pause.until else ""
    return queue_finding(
        view, "note", f"paused{end}{why}", f"to go on: {target.command('queues', 'resume', view.name)}"
    )


def queue_finding(
    view: QueueView, level: FindingLevel, message: str = "", remedy: str | None = None
) -> Finding:
    pending = sum(view.counts[state] for state in PENDING)
    holds = f"{pending} pending, {view.counts[State.RUNNING]} running, {view.counts[State.FAILED]} failed"
    return Finding(
        subject=f"queue {view.name}",
        level=level,
        message=f"{holds}; {message}" if message else holds,
        remedy=remedy,
    )


async def check_queues(app: Tidemill, overview: Overview, target: CommandTarget) -> list[Finding]:
    findings: list[Finding] = []
    for view in overview.queues:
        recent = await app.inspect.history(view.name, overview.now - RECENT_SECONDS)
        findings += _check_queue(view, overview, recent, target)
    return findings


def _check_queue(
    view: QueueView, overview: Overview, recent: Sequence[QueueMinute], target: CommandTarget
) -> Iterator[Finding]:
    yield check_served(view, overview, recent, target) or queue_finding(view, "ok")
    if view.counts[State.FAILED]:
        yield _dead_letters(view, target)
    if view.reclaimed:
        yield _possible_duplicates(view)
    if view.dropped_early:
        yield _dropped_early(view, target)
    if (max_done := view.settings.keep_done.count) is not None and view.size > max_done:
        yield _more_than_kept(view, target)
    if view.override is not None:
        yield Finding(
            subject=f"queue {view.name}",
            level="note",
            message=f"{', '.join(view.override.changes.given())} overridden by {view.override.by} since "
            f"{format_time(view.override.since)}"
            + (f": {view.override.reason}" if view.override.reason else ""),
            remedy=f"to follow the code again: {target.command('queues', 'unset', view.name)}",
        )


def _dead_letters(view: QueueView, target: CommandTarget) -> Finding:
    return Finding(
        subject=f"queue {view.name}",
        level="note",
        message=f"{pluralize(view.counts[State.FAILED], 'job')} failed for good and "
        f"{'is' if view.counts[State.FAILED] == 1 else 'are'} kept",
        remedy=f"see: {target.command('jobs', '--queue', view.name, '--state', 'failed')}; "
        f"run them again: {target.command('jobs', 'retry', '--queue', view.name)}",
    )


def _dropped_early(view: QueueView, target: CommandTarget) -> Finding:
    return Finding(
        subject=f"queue {view.name}",
        level="note",
        message=f"{pluralize(view.dropped_early, 'ended job')} of the last 24 hours "
        f"{'was' if view.dropped_early == 1 else 'were'} dropped by count before "
        f"{'its' if view.dropped_early == 1 else 'their'} age was over; done jobs are kept "
        f"{view.settings.keep_done.described()}",
        remedy=_keep_more_hint(view, target),
    )


def _more_than_kept(view: QueueView, target: CommandTarget) -> Finding:
    return Finding(
        subject=f"queue {view.name}",
        level="note",
        message=f"{pluralize(view.size, 'job')} are still to end, more than the queue keeps "
        f"({view.settings.keep_done.described()}): the first results will be dropped before the last job "
        "is done",
        remedy=_keep_more_hint(view, target),
    )


def _keep_more_hint(view: QueueView, target: CommandTarget) -> str:
    more = max(2 * view.size, 2 * (view.settings.keep_done.count or 0))
    age = view.settings.keep_done.age
    bounds = f"count={more}" if age is None else f"age={age:g},count={more}"
    return (
        f"keep more: {target.command('queues', 'set', view.name, f'keep_done={bounds}')}, or keep_done in "
        "app.queue(…); or store results elsewhere in the handler"
    )


def _possible_duplicates(view: QueueView) -> Finding:
    """Returns a finding about the attempts that were reclaimed in the last 24 hours. Delivery is
    at-least-once, so these jobs may have run twice."""
    return Finding(
        subject=f"queue {view.name}",
        level="note",
        message=f"{pluralize(view.reclaimed, 'attempt')} of the last 24 hours had to be taken back from "
        "workers that died, were killed for memory or stood still beyond their lease, and may have run twice",
        remedy="make handlers repeatable; look at how the workers ended; where machines stall or sleep, "
        "give workers a longer --lease",
    )


def check_pools(app: Tidemill, overview: Overview, target: CommandTarget) -> Iterator[Finding]:
    for pool in overview.pools:
        yield from _check_closures(pool, target)
        yield from _check_limits(pool, target)
        # A store alone does not say what the code declares.
        if app.tasks and pool.key is None and pool.name not in app.pools:
            yield _undeclared_finding(pool)


def _check_limits(pool: PoolStatus, target: CommandTarget) -> Iterator[Finding]:
    subject = f"pool {format_pool_name(pool)}"
    if pool.own_override is not None:
        yield Finding(
            subject=subject,
            level="note",
            message=f"overridden: {format_override(pool.own_override)}",
            remedy=f"to follow the code again: {_pool_command('unset', pool, target)}",
        )
    if any(limit.spacing is not None and limit.spacing.confirmed for limit in pool.limits):
        message = f"the provider refused calls; learned: {format_learned(pool)}"
        remedy = f"to forget what was learned: {_pool_command('open', pool, target)}"
        yield Finding(subject=subject, level="note", message=message, remedy=remedy)


def _check_closures(pool: PoolStatus, target: CommandTarget) -> Iterator[Finding]:
    opens = f"to open it: {_pool_command('open', pool, target)}"
    waits = f"; {pluralize(pool.waiting, 'job waits', 'jobs wait')}" if pool.waiting else ""
    for closure in pool.closures:
        by_hand = closure.until is None
        provider_text = f' (it said "{closure.text}")' if closure.text else ""
        yield Finding(
            subject=f"pool {format_pool_name(pool)}",
            level="bad" if by_hand and pool.waiting else "note",
            message=f"{format_closure(closure)}{provider_text}{waits}",
            remedy=f"set right what the provider names, then {opens}" if by_hand else opens,
        )
    if pool.closed is not None:
        end = "" if pool.closed.until is None else f" until {format_time(pool.closed.until)}"
        why = f" ({pool.closed.reason})" if pool.closed.reason else ""
        yield Finding(
            subject=f"pool {format_pool_name(pool)}",
            level="note",
            message=f"closed by {pool.closed.by}{end}{why}{waits}",
            remedy=opens,
        )


def _pool_command(verb: str, pool: PoolStatus, target: CommandTarget) -> str:
    return target.command("pools", verb, pool.name, *(("--key", pool.key) if pool.key else ()))


def _undeclared_finding(pool: PoolStatus) -> Finding:
    waits = f", and {pluralize(pool.waiting, 'job waits', 'jobs wait')} for it" if pool.waiting else ""
    return Finding(
        subject=f"pool {pool.name}",
        level="note",
        message=f"the application does not declare it any more{waits}; its last limits hold",
        remedy="nothing has to be done where another program declares it",
    )
