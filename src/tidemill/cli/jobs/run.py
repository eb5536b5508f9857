"""`tidemill jobs run`: start scheduled jobs now."""

from __future__ import annotations

import click

from tidemill.cli.jobs.changing import Meant, Words, changes_jobs
from tidemill.core.changes import RunNow
from tidemill.core.states import State

_WORDS = Words("run", "made ready", "not scheduled", (State.SCHEDULED,))


@click.command()
@changes_jobs
def run(meant: Meant) -> int:
    """Make scheduled jobs ready now, whatever they wait for."""
    return meant.change(RunNow(), _WORDS)
