"""Queues, and one of them: what it holds, what it did in a day, and what it is set to."""

from __future__ import annotations

from itertools import count, takewhile

from msgspec.structs import asdict

from tidemill.contract.reader import Minute
from tidemill.core.queues import DAY, QueueSettings, Retention
from tidemill.seam.answers import Page
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.asked import Asked
from tidemill.web.pages.overview import rates_of
from tidemill.web.wording import words

STEP = 300.0
"""Seconds that are one point of the chart: a day of minutes would be more points than there are pixels."""
LINES: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("done", "water", ()),
    ("failed", "vermilion", ()),
    ("retried", "brass", (6, 4)),
    ("cancelled", "cancelled", (2, 4)),
)
"""What is drawn, in which colour, and with which dashes: who cannot tell the colours tells the lines."""


async def queues(asked: Asked) -> Page:
    seen = await asked.inspect.overview(sparing=True)
    shows = {
        "seen": seen,
        "rates": {queue.name: await rates_of(asked.inspect, queue.name, seen.now) for queue in seen.queues},
        "most": max((queue.size for queue in seen.queues), default=0),
    }
    return Page("queues.html", shows, live=("queues",))


async def queue(asked: Asked) -> Page:
    view = await asked.inspect.queue(asked.path["queue"], sparing=True)
    workers = [worker for worker in await asked.inspect.workers() if worker.id in view.workers]
    shows = {"queue": view, "workers": workers, "settings": rows(view.declared, view.settings)}
    return Page("queue.html", shows, live=("standing", "figures", "settings", "serving"))


def rows(declared: QueueSettings, holds: QueueSettings) -> list[tuple[str, object, object]]:
    """A setting with what code says and what holds, a retention as its two bounds."""
    said, now = _flat(declared), _flat(holds)
    return [(name, said[name], now[name]) for name in said]


def _flat(settings: QueueSettings) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in asdict(settings).items():
        if isinstance(value, Retention):
            found |= {f"{name}_age": value.age, f"{name}_count": value.count}
        else:
            found[name] = value
    return found


async def history(asked: Asked) -> dict[str, object]:
    """A day of a queue, for a chart: `at` are Unix times, each line has a value for every one of them."""
    now, say = asked.app.clock.wall(), words(asked.language)
    first = (now - DAY) // STEP * STEP
    minutes = await asked.inspect.history(asked.path["queue"], first)
    at = list(takewhile(lambda time: time <= now, count(first, STEP)))
    lines = [
        {
            "name": say(f"state.{name}"),
            "tone": tone,
            "dash": dash,
            "fill": name == "done",
            "values": _by_step(minutes, name, at),
        }
        for name, tone, dash in LINES
    ]
    return {"at": at, "lines": lines}


def _by_step(minutes: list[Minute], name: str, at: list[float]) -> list[int]:
    sums = dict.fromkeys(at, 0)
    for minute in minutes:
        step = minute.at // STEP * STEP
        if step in sums:
            sums[step] += getattr(minute, name)
    return list(sums.values())


ROUTES = (
    Route(method="GET", path="/queues", role=Role.VIEWER, handler=queues, says="Every queue."),
    Route(method="GET", path="/queues/{queue}", role=Role.VIEWER, handler=queue, says="One queue."),
    Route(
        method="GET",
        path="/queues/{queue}/history",
        role=Role.VIEWER,
        handler=history,
        says="A day of a queue, for its chart.",
        answers=dict[str, object],
    ),
)
