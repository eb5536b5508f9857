"""The page of all queues, the page of one queue, and the actions pause, resume, override settings and
empty."""

from __future__ import annotations

from itertools import count, takewhile
from typing import Any

import msgspec
from msgspec.structs import asdict

from tidemill.contract.reader import QueueMinute
from tidemill.core.queues import DAY_SECONDS, QueueSettings, Retention
from tidemill.http_routes.routes import Handler, PageResponse, Redirect, Role, Route
from tidemill.web.api.schemas import NonNegativeInt, Sentence
from tidemill.web.i18n import translator
from tidemill.web.pages.overview import queue_throughput
from tidemill.web.request import RouteRequest, parse_duration_field

CHART_STEP_SECONDS = 300.0
"""Seconds per point of the chart; one point per minute would exceed its pixels."""
CHART_LINES: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("done", "water", ()),
    ("failed", "vermilion", ()),
    ("retried", "brass", (6, 4)),
    ("cancelled", "cancelled", (2, 4)),
)
"""Outcome, colour and dashes of each line; the dashes distinguish the lines without colours."""


async def queues_page(request: RouteRequest) -> PageResponse:
    overview = await request.inspect.overview(cached=True)
    context = {
        "overview": overview,
        "throughput": {
            queue.name: await queue_throughput(request.inspect, queue.name, overview.now)
            for queue in overview.queues
        },
        "largest": max((queue.size for queue in overview.queues), default=0),
    }
    return PageResponse("queues.html", context, live=("queues",))


async def queue_page(request: RouteRequest) -> PageResponse:
    view = await request.inspect.queue(request.path["queue"], cached=True)
    workers = [worker for worker in await request.inspect.workers() if worker.id in view.workers]
    context = {"queue": view, "workers": workers, "settings": setting_rows(view.declared, view.settings)}
    return PageResponse("queue.html", context, live=("status", "figures", "settings", "workers"))


def setting_rows(declared: QueueSettings, effective: QueueSettings) -> list[tuple[str, object, object]]:
    """Returns (name, declared value, effective value) for each setting. A retention becomes two rows, its age
    and its count."""
    declared_values, effective_values = _flatten_settings(declared), _flatten_settings(effective)
    return [(name, declared_values[name], effective_values[name]) for name in declared_values]


def _flatten_settings(settings: QueueSettings) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, value in asdict(settings).items():
        if isinstance(value, Retention):
            values |= {f"{name}_age": value.age, f"{name}_count": value.count}
        else:
            values[name] = value
    return values


async def queue_chart(request: RouteRequest) -> dict[str, object]:
    """Returns the data of a queue's chart for the last 24 hours. `at` has Unix times, one per five minutes.
    Each of `lines` has one value per time."""
    now, translate = request.app.clock.wall(), translator(request.language)
    first = (now - DAY_SECONDS) // CHART_STEP_SECONDS * CHART_STEP_SECONDS
    minutes = await request.inspect.history(request.path["queue"], first)
    at = list(takewhile(lambda time: time <= now, count(first, CHART_STEP_SECONDS)))
    lines = [
        {
            "name": translate(f"state.{name}"),
            "tone": tone,
            "dash": dash,
            "fill": name == "done",
            "values": _sum_by_step(minutes, name, at),
        }
        for name, tone, dash in CHART_LINES
    ]
    return {"at": at, "lines": lines}


def _sum_by_step(minutes: list[QueueMinute], name: str, at: list[float]) -> list[int]:
    sums = dict.fromkeys(at, 0)
    for minute in minutes:
        step = minute.at // CHART_STEP_SECONDS * CHART_STEP_SECONDS
        if step in sums:
            sums[step] += getattr(minute, name)
    return list(sums.values())


QUEUE_ROUTES = (
    Route(method="GET", path="/queues", role=Role.VIEWER, handler=queues_page, summary="All queues."),
    Route(method="GET", path="/queues/{queue}", role=Role.VIEWER, handler=queue_page, summary="One queue."),
    Route(
        method="GET",
        path="/queues/{queue}/history",
        role=Role.VIEWER,
        handler=queue_chart,
        summary="A day of a queue, for its chart.",
        response=dict[str, object],
    ),
)


class OperatorForm(msgspec.Struct, frozen=True, kw_only=True):
    """The form of a pause, a closure or an override. `duration`: how long the change lasts, such as `2h`;
    empty for no end."""

    duration: str | None = None
    reason: Sentence | None = None

    async def mark(self, request: RouteRequest) -> Any:
        """Returns the keyword arguments `until` and `reason` of the change. `until` is the time at which the
        change ends, None for no end."""
        return {"until": await request.end_time(self.duration), "reason": self.reason}


class QueueSettingsForm(OperatorForm, frozen=True, kw_only=True):
    """The form that overrides the settings of a queue. An empty field removes the limit or the retention
    bound. If `weight` or `crash_limit` is empty, it stays unchanged."""

    weight: int | None = None
    concurrency: int | None = None
    key_concurrency: int | None = None
    max_length: int | None = None
    crash_limit: int | None = None
    keep_done_age: str | None = None
    keep_done_count: NonNegativeInt | None = None
    keep_failed_age: str | None = None
    keep_failed_count: NonNegativeInt | None = None
    keep_cancelled_age: str | None = None
    keep_cancelled_count: NonNegativeInt | None = None

    def changes(self, effective: QueueSettings) -> dict[str, Any]:
        """Returns the settings that differ from the effective ones."""
        settings: dict[str, Any] = {
            name: getattr(self, name) for name in ("concurrency", "key_concurrency", "max_length")
        }
        for name in ("weight", "crash_limit"):
            settings[name] = getattr(effective if getattr(self, name) is None else self, name)
        for name in ("keep_done", "keep_failed", "keep_cancelled"):
            age = parse_duration_field(getattr(self, f"{name}_age"), field=f"{name}_age")
            new = Retention(age, getattr(self, f"{name}_count"))
            current: Retention = getattr(effective, name)
            settings[name] = current if new.same_bounds(current) else new
        return {name: value for name, value in settings.items() if value != getattr(effective, name)}


class EmptyQueueForm(msgspec.Struct, frozen=True):
    confirm: str = ""


async def pause_queue(request: RouteRequest) -> Redirect:
    await request.inspect.pause(request.path["queue"], **await request.body.mark(request))
    return request.redirect("/queues/{}", request.path["queue"], notice="queue.notice_paused")


async def resume_queue(request: RouteRequest) -> Redirect:
    await request.inspect.resume(request.path["queue"])
    return request.redirect("/queues/{}", request.path["queue"], notice="queue.notice_resumed")


async def override_queue(request: RouteRequest) -> Redirect:
    body: QueueSettingsForm = request.body
    name = request.path["queue"]
    changes = body.changes((await request.inspect.queue(name)).settings)
    await request.inspect.override(name, by=request.user.name, **await body.mark(request), **changes)
    return request.redirect("/queues/{}", request.path["queue"], notice="queue.notice_saved")


async def clear_queue_override(request: RouteRequest) -> Redirect:
    await request.inspect.clear_override(request.path["queue"])
    return request.redirect("/queues/{}", request.path["queue"], notice="queue.notice_override_removed")


async def empty_queue(request: RouteRequest) -> Redirect:
    deleted = await request.inspect.empty(request.path["queue"], confirm=request.body.confirm)
    return request.redirect("/queues/{}", request.path["queue"], notice="queue.notice_emptied", count=deleted)


def _queue_action_route(
    verb: str, handler: Handler, role: Role, summary: str, body: type[Any] | None = None
) -> Route:
    return Route(
        method="POST",
        path=f"/queues/{{queue}}/{verb}",
        role=role,
        handler=handler,
        summary=summary,
        body=body,
    )


QUEUE_ACTION_ROUTES = (
    _queue_action_route("pause", pause_queue, Role.OPERATOR, "Pause the queue.", OperatorForm),
    _queue_action_route("resume", resume_queue, Role.OPERATOR, "Resume the queue."),
    _queue_action_route("override", override_queue, Role.ADMIN, "Override settings.", QueueSettingsForm),
    _queue_action_route("clear-override", clear_queue_override, Role.ADMIN, "Remove the override."),
    _queue_action_route(
        "empty",
        empty_queue,
        Role.ADMIN,
        "Delete every job of the queue that is not running.",
        EmptyQueueForm,
    ),
)

ROUTES = (*QUEUE_ROUTES, *QUEUE_ACTION_ROUTES)
