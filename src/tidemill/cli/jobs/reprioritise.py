"""`tidemill jobs reprioritise`: let jobs start sooner or later."""

from __future__ import annotations

import click

from tidemill.cli.jobs.changing import Meant, Words, changes_jobs
from tidemill.cli.numbers import Whole
from tidemill.core.changes import Reprioritise
from tidemill.core.job import PRIORITY_RANGE
from tidemill.core.states import PENDING, State

_WORDS = Words(
    "reprioritise",
    "reprioritised",
    "running or already ended",
    tuple(state for state in State if state in PENDING),
)


@click.command()
@click.argument("priority", type=Whole(*PRIORITY_RANGE))
@changes_jobs
def reprioritise(meant: Meant, priority: int) -> int:
    """Give jobs that have not started another priority; smaller runs first. -- goes before a negative one."""
    return meant.change(Reprioritise(priority), _WORDS)
