"""Which file was read, and settings that somebody meant and nobody reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tidemill.app import Tidemill
from tidemill.cli.doctor.finding import Finding
from tidemill.cli.target import Target
from tidemill.hints import close_to
from tidemill.inspect.views import Overview
from tidemill.settings.store import overruled_url


def about_settings(app: Tidemill, overview: Overview, target: Target) -> Iterator[Finding]:
    read = app.settings.file
    says = f"{read.absolute()} was read" if read else f"there is no settings file in {Path.cwd()}"
    yield Finding(about="settings", level="ok", says=says)
    queues = {*app.queues, *(task.queue for task in app.tasks.values()), *(q.name for q in overview.queues)}
    for ignored in app.settings.unread(queues):
        yield Finding(about="settings", level="note", says=str(ignored))
    if not target.url and (url := overruled_url(app.settings, app.url)):
        yield Finding(about="settings", level="note", says=f"{url.setting} is ignored: {url.why}")
    if app.tasks:  # a store alone says nothing of who enqueues to it
        yield from _unused(app, overview)


def _unused(app: Tidemill, overview: Overview) -> Iterator[Finding]:
    """A queue only the file names is made by naming it: a mistyped one looks like any other."""
    of_tasks = {task.queue for task in app.tasks.values()}
    had_jobs = {view.name for view in overview.queues if view.last_ended or any(view.counts.values())}
    known = of_tasks | app.declared_in_code
    for name in app.settings.queues:
        if name in known | had_jobs:
            continue
        near = close_to(name, known)
        yield Finding(
            about="settings",
            level="note",
            says=f"queues.{name} is set, but no task is on this queue and it has had no job",
            remedy=f"did you mean queues.{near[0]}?" if near else "correct the name, or remove it",
        )
