"""`tidemill jobs delete`: remove the records of jobs."""

from __future__ import annotations

import click

from tidemill.cli.jobs.changing import Meant, Words, changes_jobs
from tidemill.core.changes import Delete
from tidemill.core.states import State

_WORDS = Words(
    "delete",
    "deleted",
    "running: cancel it first",
    tuple(state for state in State if state is not State.RUNNING),
)


@click.command()
@changes_jobs
def delete(meant: Meant) -> int:
    """Remove jobs and all that is known about them. A running one is left alone."""
    return meant.change(Delete(), _WORDS)
