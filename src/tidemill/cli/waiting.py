"""Waiting for a job that was just sent: its result is all that goes to stdout."""

from __future__ import annotations

import math
from typing import Any

import click

from tidemill.app import Tidemill
from tidemill.cli import times
from tidemill.cli.jobs.record import as_data
from tidemill.cli.output import echo, note, print_json
from tidemill.cli.secrets import Redaction
from tidemill.client.handle import JobHandle
from tidemill.errors import JobCancelled, JobFailed, ResultTimeout
from tidemill.inspect.causes import Code

FOREVER = "forever"


def patience(ctx: click.Context, option: click.Parameter, value: str | None) -> float | None:
    """`--wait` alone is without an end."""
    if value == FOREVER:
        return math.inf
    try:
        return times.duration(ctx, option, value)
    except click.BadParameter as error:
        raise click.BadParameter(f"{error.message}; without a time, write --wait last") from None


async def wait_for(
    app: Tidemill,
    handle: JobHandle[Any],
    patience: float,
    *,
    remedy: str,
    as_json: bool,
    redaction: Redaction,
) -> int:
    """`remedy` is the command that starts a worker. What keeps the job from starting is said at once:
    whoever waits for nothing should not have to ask why."""
    if in_the_way := await _in_the_way(app, handle.id, remedy):
        note(in_the_way)
    said: str | None = None
    try:
        await handle.result(None if patience == math.inf else patience)
    except ResultTimeout as error:
        said = f"{error}. {await _in_the_way(app, handle.id, remedy)}".strip()
    except (JobFailed, JobCancelled) as error:
        said = str(error)
    job = await app.job(handle.id).status()
    data = as_data(redaction.job(app, job))
    if as_json:
        print_json(data | {"existing": handle.existing})
    elif said is None:
        echo(bytes(data["result"] or b"null").decode())
    if said is not None:
        note(redaction.text(app, said, job))
    return 0 if said is None else 1


async def _in_the_way(app: Tidemill, job: str, remedy: str) -> str:
    causes = (await app.inspect.explain(job)).causes
    told = [cause.sentence for cause in causes if cause.code in _LASTING]
    if any(cause.code is Code.UNSERVED for cause in causes):
        told.append(f"Such as: {remedy}")
    return " ".join(told)


_LASTING = frozenset({Code.EXPIRED, Code.PAUSED, Code.UNSERVED, Code.UNKNOWN_TASK, Code.SCHEDULED})
"""What waiting a little longer does not end."""
