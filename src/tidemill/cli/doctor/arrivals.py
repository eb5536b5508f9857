"""Requests that others wrote into the store and that nobody made jobs of."""

from __future__ import annotations

from tidemill.app import Tidemill
from tidemill.cli.doctor.finding import Finding
from tidemill.cli.doctor.workers import start_one
from tidemill.cli.target import Target
from tidemill.inspect.views import Overview
from tidemill.inspect.words import duration, plural

LOOKED_AT = 1000
TAKEN_WITHIN = 10.0
"""A worker that knows the task has taken it long before, seconds apart as it looks."""


async def about_arrivals(app: Tidemill, overview: Overview, target: Target) -> list[Finding]:
    """They are no jobs yet, so no list of jobs shows them."""
    since = overview.now - (TAKEN_WITHIN if overview.workers else 0.0)
    found = [each for each in await app.store.arrivals(LOOKED_AT) if each.arrived <= since]
    if not found:
        return []
    count = f"{'at least ' if len(found) == LOOKED_AT else ''}{plural(len(found), 'request')}"
    wait = "waits" if len(found) == 1 else "wait"
    taken = " that no running worker has taken" if overview.workers else ""
    oldest = duration(overview.now - min(each.arrived for each in found))
    tasks = ", ".join(sorted({each.task for each in found})[:5])
    knows = "start a worker with the code that has them, or correct the name; after 24 hours a request fails"
    return [
        Finding(
            about="arrivals",
            level="note",
            says=f"{count} from outside {wait}{taken}, the oldest for {oldest}: {tasks}",
            remedy=knows if overview.workers else start_one(target),
        )
    ]
