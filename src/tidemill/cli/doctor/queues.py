"""Is every queue served, and does it keep up?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidemill.app import Tidemill
from tidemill.cli.doctor.finding import Finding
from tidemill.cli.doctor.workers import START_ONE
from tidemill.cli.output import moment
from tidemill.contract.reader import Minute
from tidemill.core.states import PENDING, State
from tidemill.inspect.views import Overview, QueueView
from tidemill.inspect.words import duration, plural

LATE = 60.0
"""A worker promotes a job within a second or so of its due time; after a minute nobody does."""

LOOKED_BACK = 600.0
PATIENCE = 1800.0
"""A backlog that takes longer than this at the current rate is worth a word."""


async def about_queues(app: Tidemill, overview: Overview) -> list[Finding]:
    findings: list[Finding] = []
    for view in overview.queues:
        recent = await app.inspect.history(view.name, overview.now - LOOKED_BACK)
        findings += _about(view, overview, recent)
    return findings


def _about(view: QueueView, overview: Overview, recent: Sequence[Minute]) -> Iterator[Finding]:
    trouble = list(_trouble(view, overview, recent))
    yield from trouble or [_finding(view, "ok", "")]
    if view.counts[State.FAILED]:
        yield _dead_letters(view)
    if view.reclaimed:
        yield _run_twice(view)
    if view.override is not None:
        yield Finding(
            about=f"queue {view.name}",
            level="note",
            says=f"{', '.join(view.override.changes.given())} overridden by {view.override.by} since "
            f"{moment(view.override.since)}" + (f": {view.override.reason}" if view.override.reason else ""),
            remedy=f"to follow the code again: tidemill queues unset {view.name}",
        )


def _trouble(view: QueueView, overview: Overview, recent: Sequence[Minute]) -> Iterator[Finding]:
    pending = sum(view.counts[state] for state in PENDING)
    overdue = view.next_due is not None and view.next_due < overview.now - LATE
    if pending and overview.workers and not view.workers:
        yield _finding(view, "bad", "no worker serves it", "add it to a worker's --queues")
    elif view.pause is not None and pending:
        why = f" ({view.pause.reason})" if view.pause.reason else ""
        end = f" until {moment(view.pause.until)}" if view.pause.until else ""
        yield _finding(view, "note", f"paused{end}{why}", f"to go on: tidemill queues resume {view.name}")
    elif not overview.workers and (view.counts[State.READY] or overdue):
        yield _finding(view, "bad", "no worker is running", START_ONE)
    elif overdue and view.next_due is not None:
        yield _finding(
            view,
            "bad",
            f"a scheduled job is overdue by {duration(overview.now - view.next_due)}",
            "its workers are stuck or cannot write: look at their logs, and start them again",
        )
    elif view.counts[State.READY]:
        yield from _pace(view, recent)


def _pace(view: QueueView, recent: Sequence[Minute]) -> Iterator[Finding]:
    """How long the ready jobs would take at the rate of the last minutes."""
    ready, ended = view.counts[State.READY], sum(minute.done + minute.failed for minute in recent)
    stuck = (view.latency or 0.0) > LATE and not ended
    if stuck and not view.counts[State.RUNNING]:
        yield _finding(
            view,
            "bad",
            f"{plural(ready, 'job')} could have started {duration(view.latency or 0.0)} ago, and none did",
            f"ask why: tidemill explain ID, with one of tidemill jobs --queue {view.name} --state ready",
        )
    elif ended and (takes := ready * LOOKED_BACK / ended) > PATIENCE:
        yield _finding(
            view,
            "note",
            f"the backlog takes {duration(takes)} at {ended * 60 / LOOKED_BACK:.3g} a minute, "
            "the rate of the last ten minutes",
            "more workers, more --concurrency, or a higher limit of the queue make it shorter",
        )


def _finding(view: QueueView, level: str, says: str, remedy: str | None = None) -> Finding:
    pending = sum(view.counts[state] for state in PENDING)
    holds = f"{pending} pending, {view.counts[State.RUNNING]} running, {view.counts[State.FAILED]} failed"
    return Finding(
        about=f"queue {view.name}",
        level="bad" if level == "bad" else "note" if level == "note" else "ok",
        says=f"{holds}; {says}" if says else holds,
        remedy=remedy,
    )


def _dead_letters(view: QueueView) -> Finding:
    return Finding(
        about=f"queue {view.name}",
        level="note",
        says=f"{plural(view.counts[State.FAILED], 'job')} failed for good and "
        f"{'is' if view.counts[State.FAILED] == 1 else 'are'} kept",
        remedy=f"look: tidemill jobs --queue {view.name} --state failed; "
        f"run them again: tidemill jobs retry --queue {view.name}",
    )


def _run_twice(view: QueueView) -> Finding:
    """A reclaimed attempt may have done its work: that is the price of at least once."""
    return Finding(
        about=f"queue {view.name}",
        level="note",
        says=f"{plural(view.reclaimed, 'attempt')} of the last 24 hours had to be taken back from workers "
        "that died, were killed for memory or stood still beyond their lease, and may have run twice",
        remedy="make handlers repeatable; look at how the workers ended; where machines stall or sleep, "
        "give workers a longer --lease",
    )
