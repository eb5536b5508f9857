"""`tidemill worker`: run jobs until told to stop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import click

from tidemill.app import Tidemill
from tidemill.cli.application import load, required
from tidemill.cli.installed import offered
from tidemill.cli.milestones import tell_milestones
from tidemill.cli.minding import mind_ignored, mind_unknown, minded
from tidemill.cli.numbers import Whole
from tidemill.cli.running import log_to_stderr, runs_jobs
from tidemill.cli.times import duration
from tidemill.worker.options import WorkerOptions


@click.command()
@click.argument("app", metavar="[MODULE:APP]", required=False, shell_complete=offered)
@click.option(
    "--processes",
    type=Whole(1),
    help="Under a parent that starts again any that ends. Default: none.",
)
@runs_jobs(log_format="auto")
@click.option(
    "--lease",
    callback=duration,
    metavar="DURATION",
    help="How long a silent worker keeps its jobs. Default: 30s.",
)
@click.option(
    "--poll",
    callback=duration,
    metavar="DURATION",
    help="How late a job may start when a wake-up is lost. Default: 2s.",
)
def worker(
    app: str | None,
    *,
    processes: int | None,
    log_format: str | None,
    log_level: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Run a worker for an application, such as myproject.jobs:app.

    Without an argument it is the one that is set (TIDEMILL_APP, or app in tidemill.toml)."""
    from tidemill.worker.supervisor import supervised_id

    spec = required(app)
    application = load(spec)
    chosen, least = log_to_stderr(application, log_format or ("json" if as_json else None), log_level)
    if as_json:
        tell_milestones(application, spec)
    given = {name: value for name, value in options.items() if value is not None}
    checked = application.worker_options(**given)  # refused here, not in every child again and again
    worker_id = supervised_id()
    if worker_id is None:  # a supervised worker's parent has said it, and is the one to have processes
        mind_ignored(application, checked.queues)
        mind_unknown(application, checked.queues)
        processes = processes or application.settings.value("worker.processes")
    if processes is None:
        beside = minded(application, checked) if worker_id is None else None
        application.run_worker(beside, id=worker_id, **given)
        return
    # The parent has decided what suits the terminal: its children must not decide otherwise.
    passed_on = given | {"log_format": chosen, "log_level": least, "json": as_json}
    command = [sys.executable, "-m", "tidemill", "worker", *_as_arguments(passed_on)]
    asyncio.run(_supervise(application, [*command, "--", spec], processes, checked))


async def _supervise(app: Tidemill, command: list[str], processes: int, options: WorkerOptions) -> None:
    try:
        async with minded(app, options):
            await app.supervise(command, processes, until_idle=options.until_idle)
    finally:
        await app.close()


def _as_arguments(options: dict[str, Any]) -> Iterator[str]:
    """The options as a child is given them."""
    for name, value in options.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            if value:
                yield f"--{flag}"
        elif isinstance(value, dict):
            weights = (queue if weight is None else f"{queue}={weight}" for queue, weight in value.items())
            yield f"--{flag}={','.join(weights)}"
        else:
            yield f"--{flag}={value}"
