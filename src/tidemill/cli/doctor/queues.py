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
