"""`tidemill worker`: run jobs until told to stop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import click

from tidemill.app import Tidemill
from tidemill.cli.target import load
from tidemill.cli.times import duration
from tidemill.logs import use_stderr
from tidemill.worker.log import logger


def weights(_ctx: click.Context, _option: click.Parameter, value: str | None) -> dict[str, int | None] | None:
    """`feeds=5,mail` → weights by name, in the order given."""
    if value is None:
        return None
    found: dict[str, int | None] = {}
    for part in filter(None, (piece.strip() for piece in value.split(","))):
        name, given, weight = part.partition("=")
        if not name or (given and not weight.isdecimal()) or weight == "0":
            raise click.BadParameter(f"{part!r} is not NAME or NAME=WEIGHT with a whole weight of 1 or more")
        found[name] = int(weight) if given else None
    if not found:
        raise click.BadParameter("names no queue; write a,b or a=10,b")
    return found


@click.command()
@click.argument("app", metavar="MODULE:APP")
@click.option(
    "--queues", callback=weights, help="Which, and with what weight: a=10,b. Default: all of the app."
)
@click.option("--concurrency", type=click.IntRange(min=1), help="Jobs at once in each process. Default: 10.")
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    help="Under a parent that starts again any that ends. Default: none.",
)
@click.option("--strict", is_flag=True, default=None, help="Serve queues in the order given, not by weight.")
@click.option("--lease", callback=duration, help="How long a silent worker keeps its jobs. Default: 30s.")
@click.option(
    "--grace", callback=duration, help="How long running jobs may finish after SIGTERM. Default: 30s."
)
@click.option(
    "--poll", callback=duration, help="How late a job may start when a wake-up is lost. Default: 1s."
)
@click.option("--threads", type=click.IntRange(min=1), help="Sync handlers at once. Default: --concurrency.")
@click.option(
    "--until-idle",
    is_flag=True,
    default=None,
    help="Stop when nothing is ready or running; retries and delayed jobs that are not due stay.",
)
@click.option("--json-logs/--no-json-logs", default=None, help="Default: JSON unless stderr is a terminal.")
def worker(app: str, *, processes: int | None, json_logs: bool | None, **options: Any) -> None:
    """Run a worker for an application, such as myproject.jobs:app."""
    from tidemill.worker.supervisor import supervised_id

    application = load(app)
    json = not sys.stderr.isatty() if json_logs is None else json_logs
    use_stderr(json=json)
    given = {name: value for name, value in options.items() if value is not None}
    worker_id = supervised_id()
    if worker_id is None:  # a supervised worker's parent has said it
        _mind_unknown(application, given.get("queues", ()))
    if processes is None:
        application.run_worker(id=worker_id, **given)
        return
    application.worker_options(**given)  # refused here, not in every child again and again
    command = [sys.executable, "-m", "tidemill", "worker", *_as_arguments(given | {"json_logs": json})]
    until_idle = bool(given.get("until_idle"))
    asyncio.run(application.supervise([*command, "--", app], processes, until_idle=until_idle))


def _mind_unknown(app: Tidemill, named: Iterable[str]) -> None:
    """A warning and no more: jobs may be put on a queue by a program that declares other tasks."""
    known = {*app.queues, *(task.queue for task in app.tasks.values())}
    unknown = [name for name in named if name not in known]
    if unknown:
        logger().warning(
            "queues that the application neither declares nor has a task on",
            unknown=unknown,
            known=sorted(known),
        )


def _as_arguments(options: dict[str, Any]) -> Iterator[str]:
    """The options as a child is given them."""
    for name, value in options.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
        elif isinstance(value, dict):
            weights = (queue if weight is None else f"{queue}={weight}" for queue, weight in value.items())
            yield f"--{flag}={','.join(weights)}"
        else:
            yield f"--{flag}={value}"
