"""`--show-secrets`: without it, commands print jobs and schedules without their secrets."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from tidemill.access.redacting import Redactor
from tidemill.app import Tidemill
from tidemill.core.job import Job
from tidemill.inspect.explanation import Explanation
from tidemill.inspect.views import JobView
from tidemill.schedules.views import ScheduleView

_META = "tidemill.show_secrets"


@dataclass(frozen=True)
class Redaction:
    """Redacts jobs and schedules for a command, unless the user gave --show-secrets."""

    show_secrets: bool = False

    def job(self, app: Tidemill, job: Job) -> Job:
        return job if self.show_secrets else Redactor(app.secrets).job(job)

    def view(self, app: Tidemill, view: JobView) -> JobView:
        return view if self.show_secrets else Redactor(app.secrets).view(view)

    def explanation(self, app: Tidemill, explanation: Explanation, job: Job | None) -> Explanation:
        return explanation if self.show_secrets else Redactor(app.secrets).explanation(explanation, job)

    def schedule(self, app: Tidemill, view: ScheduleView) -> ScheduleView:
        return view if self.show_secrets else Redactor(app.secrets).schedule(view)

    def text(self, app: Tidemill, text: str, job: Job) -> str:
        return text if self.show_secrets else app.secrets.text(text, job.task, job.payload)


def with_secrets(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the option; the command gets it as `redaction`. What a group was given holds for its
    subcommands."""

    @click.option("--show-secrets", is_flag=True, help="Print secret values as they are stored.")
    @functools.wraps(command)
    def wrapped(*given: Any, show_secrets: bool, **options: Any) -> Any:
        meta = click.get_current_context().meta
        meta[_META] = show_secrets or meta.get(_META, False)
        return command(*given, redaction=Redaction(meta[_META]), **options)

    return wrapped
