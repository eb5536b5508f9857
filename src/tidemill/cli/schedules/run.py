"""`tidemill schedules run`: a job of it now."""

from __future__ import annotations

import click

from tidemill.app import Tidemill
from tidemill.cli import complete
from tidemill.cli.output import echo, note, print_json
from tidemill.cli.target import Target, with_target


@click.command()
@click.argument("name", shell_complete=complete.schedules)
@with_target
def run(target: Target, name: str) -> None:
    """Make a job of it now; its ticks stay as they are."""

    async def make(app: Tidemill) -> tuple[str, bool]:
        job = await app.schedules.run_now(name)
        return job.id, bool(job.existing)

    job, existing = target.run(make)
    if existing:
        note("its last job has not ended: no other was made")
    if target.json:
        print_json({"schedule": name, "job": job, "existing": existing})
    else:
        echo(job)
