"""Flows that nobody goes on with: their jobs have ended, so no queue tells of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidemill.app import Tidemill
from tidemill.cli.doctor.finding import Finding
from tidemill.cli.doctor.workers import start_one
from tidemill.cli.target import Target
from tidemill.core.courses import Kind, Stirred
from tidemill.core.graph import decode
from tidemill.core.graph_next import making
from tidemill.inspect.views import Overview
from tidemill.inspect.words import duration, plural

LOOKED_AT = 1000
NAMED = 5
ADVANCED_WITHIN = 15.0
"""A worker has gone on with it long before, and a leader that died is replaced by then."""


async def about_flows(app: Tidemill, overview: Overview, target: Target) -> list[Finding]:
    stirred = (await app.store.agenda(Kind.FLOW, LOOKED_AT)).stirred
    waited = await _waited(app, stirred, overview.now)
    least = ADVANCED_WITHIN if overview.workers else 0.0
    left = [each for each in stirred if waited[each.course.id] >= least]
    return [_nobody_goes_on(left, max(waited.values()), overview, target)] if left else []


async def _waited(app: Tidemill, stirred: Sequence[Stirred], now: float) -> dict[str, float]:
    """By flow: how long there has been something to do. 0 where nothing tells since when."""
    jobs = await app.store.get([each.ends[0].job for each in stirred if each.ends])
    ended = {job.id: job.finished for job in jobs if job is not None}
    since = {each.course.id: _since(each, ended) for each in stirred}
    return {flow: 0.0 if at is None else max(0.0, now - at) for flow, at in since.items()}


def _since(stirred: Stirred, ended: dict[str, float | None]) -> float | None:
    stuck = decode(stirred.course.record).stuck
    if stuck is not None:
        return stuck
    return ended.get(stirred.ends[0].job) if stirred.ends else stirred.course.due


def _nobody_goes_on(left: Sequence[Stirred], longest: float, overview: Overview, target: Target) -> Finding:
    many = f"{'at least ' if len(left) == LOOKED_AT else ''}{plural(len(left), 'flow waits', 'flows wait')}"
    named = ", ".join(each.course.id for each in left[:NAMED])
    more = f" and {len(left) - NAMED} more" if len(left) > NAMED else ""
    tasks = sorted({*_unknown(left)})[:NAMED]
    knows = f"start a worker with the code that has {', '.join(tasks)}; after 24 hours such a step fails"
    stuck = "workers are stuck or cannot write: look at their logs, and start them again"
    return Finding(
        about="flows",
        level="bad",
        says=f"{many} for somebody to go on, for up to {duration(longest)}: {named}{more}",
        remedy=start_one(target) if not overview.workers else knows if tasks else stuck,
    )


def _unknown(left: Sequence[Stirred]) -> Iterator[str]:
    """The tasks that those who looked did not know."""
    for each in left:
        graph = decode(each.course.record)
        if graph.stuck is not None:
            yield from (job.work.task for job in making(graph, 1))
