"""Settings that somebody meant and nobody reads."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.app import Tidemill
from tidemill.cli.doctor.finding import Finding
from tidemill.inspect.views import Overview


def about_settings(app: Tidemill, overview: Overview) -> Iterator[Finding]:
    queues = {*app.queues, *(task.queue for task in app.tasks.values()), *(q.name for q in overview.queues)}
    for sentence in app.settings.unread(queues):
        yield Finding(about="settings", level="note", says=sentence)
