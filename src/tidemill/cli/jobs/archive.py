"""`tidemill jobs archive`: put jobs aside without running them."""

from __future__ import annotations

import click

from tidemill.cli.jobs.changing import Meant, Words, changes_jobs
from tidemill.core.changes import Archive
from tidemill.core.states import PENDING, State

_WORDS = Words(
    "archive", "archived", "running or already ended", tuple(state for state in State if state in PENDING)
)


@click.command()
@click.option("--reason", default="archived by hand", show_default=True, help="Kept with the job.")
@changes_jobs
def archive(meant: Meant, reason: str) -> int:
    """Put jobs that have not started among the failed ones: kept, searchable, retryable."""
    return meant.change(Archive(reason), _WORDS)
