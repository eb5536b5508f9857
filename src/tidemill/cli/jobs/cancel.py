"""`tidemill jobs cancel`: end jobs that have not ended."""

from __future__ import annotations

import click

from tidemill.cli.jobs.changing import Meant, Words, changes_jobs
from tidemill.core.changes import Cancel
from tidemill.core.states import LIVE, State

_WORDS = Words("cancel", "cancelled", "already ended", tuple(state for state in State if state in LIVE))


@click.command()
@click.option("--reason", default="cancelled by hand", show_default=True, help="Kept with the job.")
@changes_jobs
def cancel(meant: Meant, reason: str) -> int:
    """Cancel jobs that have not ended; a running one is told to stop."""
    return meant.change(Cancel(reason), _WORDS)
