"""`tidemill jobs retry`: run ended jobs again."""

from __future__ import annotations

import click

from tidemill.cli.jobs.changing import Meant, Words, changes_jobs
from tidemill.core.changes import RetryNow
from tidemill.core.states import State

_WORDS = Words("retry", "retried", "not ended yet", (State.FAILED,))


@click.command()
@changes_jobs
def retry(meant: Meant) -> int:
    """Run ended jobs again, from their first attempt. A filter without --state means failed ones."""
    return meant.change(RetryNow(), _WORDS)
