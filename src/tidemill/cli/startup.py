"""Startup of worker, up and web: log setup, checks of queues and settings, JSON status lines."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Any, Literal

import click
import msgspec

from tidemill.app import Tidemill
from tidemill.app.worker_api import SideContext
from tidemill.cli.output import print_json_line
from tidemill.core.validation import close_matches
from tidemill.telemetry.event_base import Event
from tidemill.telemetry.events import WorkerDied, WorkerStarted, WorkerStopped
from tidemill.worker.options import WorkerOptions


def print_status(word: str, **facts: Any) -> None:
    print_json_line({"event": word} | facts)


def print_worker_status(app: Tidemill, spec: str, links: Sequence[str] = ()) -> None:
    """Makes this process print a JSON line when a worker starts, stops or dies. The line of a start has the
    first of `links`, which are sign-in links."""

    @app.on(WorkerStarted)
    def started(event: WorkerStarted) -> None:
        print_status("started", application=spec, link=next(iter(links), None), **_event_fields(event))

    @app.on(WorkerStopped)
    def stopped(event: WorkerStopped) -> None:
        print_status("stopped", **_event_fields(event))

    @app.on(WorkerDied)
    def died(event: WorkerDied) -> None:
        print_status("died", **_event_fields(event))


def _event_fields(event: Event) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(event).items() if value is not None}


def warn_unknown_queues(app: Tidemill, named: Iterable[str]) -> None:
    """Emits a warning if `named` contains queues that the application does not know. This is no error,
    because another program may enqueue to these queues."""
    from tidemill.telemetry.events import UnknownQueues

    known = _known_queues(app)
    unknown = [name for name in named if name not in known]
    if unknown:
        app.signals.emit(UnknownQueues(unknown=tuple(unknown), known=tuple(sorted(known))))


def warn_ignored_settings(app: Tidemill, named: Iterable[str] = ()) -> None:
    """Emits a warning for each setting that has no effect. `named` are queues that the worker serves.

    DATABASE_URL and REDIS_URL cause no warning, because they may be meant for another program."""
    from tidemill.settings.settings import SHARED_URL_VARIABLES, find_overruled_url
    from tidemill.telemetry.events import SettingIgnored

    queues = {*_known_queues(app), *named}
    url = find_overruled_url(app.settings, app.url)
    overruled = [] if url is None or url.setting in SHARED_URL_VARIABLES else [url]
    for ignored in (*overruled, *app.settings.unread(queues)):
        app.signals.emit(SettingIgnored(setting=ignored.setting, why=ignored.why))


@asynccontextmanager
async def preflight(
    app: Tidemill, options: WorkerOptions, beside: SideContext | None = None
) -> AsyncIterator[None]:
    """Async context manager in which a worker runs. `beside` is another context manager, such as the
    dashboard, that is open at the same time. Raises a usage error if a worker that stops when idle has
    mistyped queue names."""
    if options.until_idle:  # with a mistyped name it would find no jobs and stop, without an error
        await _refuse_mistyped_queues(app, options.queues)
    async with beside or nullcontext():
        yield


async def _refuse_mistyped_queues(app: Tidemill, named: Collection[str]) -> None:
    """Raises a usage error if the application and the store know none of the queues in `named`, and one of
    these names looks mistyped."""
    known = _known_queues(app)
    near = {name: found[0] for name in named if (found := close_matches(name, known))}
    mistyped = {name: near[name] for name in near if _without_numbers(name) != _without_numbers(near[name])}
    if not mistyped or known.intersection(named):
        return
    stored = {queue.name for queue in await app.inspect.queues()}
    if stored.isdisjoint(named):
        wrong, intended = next(iter(mistyped.items()))
        raise click.UsageError(
            f"queues: {wrong!r} is neither declared nor in the store, and nothing would be served; "
            f"did you mean {intended}?"
        )


def _known_queues(app: Tidemill) -> set[str]:
    return {*app.queues, *(task.queue for task in app.tasks.values())}


def _without_numbers(name: str) -> str:
    return re.sub(r"[^a-z]?\d+", "", name)


StderrLogFormat = Literal["json", "console"]


def configure_logging(app: Tidemill, format: str | None, level: str | None) -> tuple[StderrLogFormat, str]:  # noqa: A002 - the word for it
    """Configures the log by `format` and `level`, or by the settings if these are None. Returns the format in
    use ("json" or "console") and the level."""
    from tidemill.logs import configure

    chosen = format or app.settings.value("log.format")
    resolved: StderrLogFormat = (
        "console" if chosen == "console" or (chosen == "auto" and sys.stderr.isatty()) else "json"
    )
    log_level = level or app.settings.value("log.level")
    configure(format=resolved, level=log_level)
    return resolved, log_level
