"""How every queue does, and what of it somebody should know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidemill.app import Tidemill
from tidemill.cli.doctor.finding import Finding
from tidemill.cli.doctor.serving import LOOKED_BACK, finding, trouble
from tidemill.cli.output import moment
from tidemill.cli.target import Target
from tidemill.contract.reader import Minute
from tidemill.core.states import State
from tidemill.inspect.views import Overview, QueueView
from tidemill.inspect.words import plural


async def about_queues(app: Tidemill, overview: Overview, target: Target) -> list[Finding]:
    findings: list[Finding] = []
    for view in overview.queues:
        recent = await app.inspect.history(view.name, overview.now - LOOKED_BACK)
        findings += _about(view, overview, recent, target)
    return findings


def _about(
    view: QueueView, overview: Overview, recent: Sequence[Minute], target: Target
) -> Iterator[Finding]:
    yield trouble(view, overview, recent, target) or finding(view, "ok")
    if view.counts[State.FAILED]:
        yield _dead_letters(view, target)
    if view.reclaimed:
        yield _run_twice(view)
    if view.dropped_early:
        yield _dropped_early(view, target)
    if (kept := view.settings.keep_done.count) is not None and view.size > kept:
        yield _more_than_kept(view, target)
    if view.override is not None:
        yield Finding(
            about=f"queue {view.name}",
            level="note",
            says=f"{', '.join(view.override.changes.given())} overridden by {view.override.by} since "
            f"{moment(view.override.since)}" + (f": {view.override.reason}" if view.override.reason else ""),
            remedy=f"to follow the code again: {target.command('queues', 'unset', view.name)}",
        )


def _dead_letters(view: QueueView, target: Target) -> Finding:
    return Finding(
        about=f"queue {view.name}",
        level="note",
        says=f"{plural(view.counts[State.FAILED], 'job')} failed for good and "
        f"{'is' if view.counts[State.FAILED] == 1 else 'are'} kept",
        remedy=f"look: {target.command('jobs', '--queue', view.name, '--state', 'failed')}; "
        f"run them again: {target.command('jobs', 'retry', '--queue', view.name)}",
    )


def _dropped_early(view: QueueView, target: Target) -> Finding:
    return Finding(
        about=f"queue {view.name}",
        level="note",
        says=f"{plural(view.dropped_early, 'ended job')} of the last 24 hours "
        f"{'was' if view.dropped_early == 1 else 'were'} dropped by count before "
        f"{'its' if view.dropped_early == 1 else 'their'} age was over; done jobs are kept "
        f"{view.settings.keep_done.described()}",
        remedy=_keep_more(view, target),
    )


def _more_than_kept(view: QueueView, target: Target) -> Finding:
    return Finding(
        about=f"queue {view.name}",
        level="note",
        says=f"{plural(view.size, 'job')} are still to end, more than the queue keeps "
        f"({view.settings.keep_done.described()}): the first results will be dropped before the last job "
        "is done",
        remedy=_keep_more(view, target),
    )


def _keep_more(view: QueueView, target: Target) -> str:
    more = max(2 * view.size, 2 * (view.settings.keep_done.count or 0))
    age = view.settings.keep_done.age
    bounds = f"count={more}" if age is None else f"age={age:g},count={more}"
    return (
        f"keep more: {target.command('queues', 'set', view.name, f'keep_done={bounds}')}, or keep_done in "
        "app.queue(…); or store results elsewhere in the handler"
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
