"""Waiting for a job that was just sent: its result is all that goes to stdout."""

from __future__ import annotations

import math
from typing import Any

import click

from tidemill.app import Tidemill
from tidemill.cli import times
from tidemill.cli.jobs.record import as_data
from tidemill.cli.output import note, print_json, printable
from tidemill.client.handle import JobHandle
from tidemill.errors import JobCancelled, JobFailed, ResultTimeout

FOREVER = "forever"


def patience(ctx: click.Context, option: click.Parameter, value: str | None) -> float | None:
    """`--wait` alone is without an end."""
    if value == FOREVER:
        return math.inf
    try:
        return times.duration(ctx, option, value)
    except click.BadParameter as error:
        raise click.BadParameter(f"{error.message}; without a time, write --wait last") from None


async def wait_for(app: Tidemill, handle: JobHandle[Any], patience: float, *, as_json: bool) -> int:
    said: str | None = None
    try:
        await handle.result(None if patience == math.inf else patience)
    except (JobFailed, JobCancelled, ResultTimeout) as error:
        said = str(error)
    data = as_data(await app.job(handle.id).status())
    if as_json:
        print_json(data | {"existing": handle.existing})
    elif said is None:
        click.echo(printable(bytes(data["result"] or b"null").decode()))
    if said is not None:
        note(said)
    return 0 if said is None else 1
