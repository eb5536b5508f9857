"""What was probably not meant, told before anything starts."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager, nullcontext

import click

from tidemill.app import Tidemill
from tidemill.app.working import Beside
from tidemill.hints import close_to
from tidemill.worker.options import WorkerOptions


def mind_unknown(app: Tidemill, named: Iterable[str]) -> None:
    """A warning and no more: jobs may be put on a queue by a program that declares other tasks."""
    from tidemill.telemetry.events import QueuesUnknown

    known = _known(app)
    unknown = [name for name in named if name not in known]
    if unknown:
        app.signals.emit(QueuesUnknown(unknown=tuple(unknown), known=tuple(sorted(known))))


def mind_ignored(app: Tidemill, named: Iterable[str] = ()) -> None:
    """Settings that have no effect, though somebody made them. A variable that other programs read too may
    well be theirs alone: of that only the doctor speaks."""
    from tidemill.settings.store import SHARED, overruled_url
    from tidemill.telemetry.events import SettingIgnored

    queues = {*_known(app), *named}
    url = overruled_url(app.settings, app.url)
    told = [] if url is None or url.setting in SHARED else [url]
    for ignored in (*told, *app.settings.unread(queues)):
        app.signals.emit(SettingIgnored(setting=ignored.setting, why=ignored.why))


@asynccontextmanager
async def minded(app: Tidemill, options: WorkerOptions, beside: Beside | None = None) -> AsyncIterator[None]:
    """For a worker that stops when it is idle: nobody would see that it served nothing."""
    if options.until_idle:
        await _refuse_mistyped(app, options.queues)
    async with beside or nullcontext():
        yield


async def _refuse_mistyped(app: Tidemill, named: Collection[str]) -> None:
    """One queue that is known is enough, or one that the store has, whoever put jobs on it. A number in a
    name is no typing error: `feeds-2` may come after `feeds-1`."""
    known = _known(app)
    near = {name: found[0] for name in named if (found := close_to(name, known))}
    typed = {name: near[name] for name in near if _letters(name) != _letters(near[name])}
    if not typed or known.intersection(named):
        return
    there = {queue.name for queue in await app.inspect.queues()}
    if there.isdisjoint(named):
        wrong, meant = next(iter(typed.items()))
        raise click.UsageError(
            f"queues: {wrong!r} is neither declared nor in the store, and nothing would be served; "
            f"did you mean {meant}?"
        )


def _known(app: Tidemill) -> set[str]:
    return {*app.queues, *(task.queue for task in app.tasks.values())}


def _letters(name: str) -> str:
    return re.sub(r"[^a-z]?\d+", "", name)
