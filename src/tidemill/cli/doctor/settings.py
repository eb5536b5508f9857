"""Which file was read, and settings that somebody meant and nobody reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tidemill.app import Tidemill
from tidemill.cli.doctor.finding import Finding
from tidemill.inspect.views import Overview


def about_settings(app: Tidemill, overview: Overview) -> Iterator[Finding]:
    read = app.settings.file
    says = f"{read.absolute()} was read" if read else f"there is no settings file in {Path.cwd()}"
    yield Finding(about="settings", level="ok", says=says)
    queues = {*app.queues, *(task.queue for task in app.tasks.values()), *(q.name for q in overview.queues)}
    for sentence in app.settings.unread(queues):
        yield Finding(about="settings", level="note", says=sentence)
