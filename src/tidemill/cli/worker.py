"""`tidemill worker` and `tidemill up`: run a worker, alone or with the dashboard."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import click

from tidemill.app import Tidemill
from tidemill.cli.application_loader import complete_applications, load_application, require_spec
from tidemill.cli.options import WholeNumber, parse_duration_option, with_worker_options
from tidemill.cli.output import echo
from tidemill.cli.startup import (
    configure_logging,
    preflight,
    print_worker_status,
    warn_ignored_settings,
    warn_unknown_queues,
)
from tidemill.cli.store_options import CommandTarget
from tidemill.cli.web import open_listener, serve_dashboard, with_listen_options
from tidemill.tasks.definition import TaskDefinition
from tidemill.telemetry.events import WorkerStarted
from tidemill.worker.options import WorkerOptions


@click.command()
@click.argument("app", metavar="[MODULE:APP]", required=False, shell_complete=complete_applications)
@click.option(
    "--processes",
    type=WholeNumber(1),
    help="Number of worker processes, restarted by a parent process. Default: no parent.",
)
@with_worker_options(log_format="auto")
@click.option(
    "--lease",
    callback=parse_duration_option,
    metavar="DURATION",
    help="How long a silent worker keeps its claims. Default: 30s.",
)
@click.option(
    "--poll",
    callback=parse_duration_option,
    metavar="DURATION",
    help="How late a job may start if a wake-up is lost. Default: 2s.",
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

    Without an argument it uses the configured application (TIDEMILL_APP, or app in tidemill.toml)."""
    from tidemill.worker.supervisor import supervised_id

    spec = require_spec(app)
    application = load_application(spec)
    format_, level = configure_logging(application, log_format or ("json" if as_json else None), log_level)
    if as_json:
        print_worker_status(application, spec)
    worker_options = {name: value for name, value in options.items() if value is not None}
    checked = application.worker_options(**worker_options)  # check here once, not in every child process
    worker_id = supervised_id()
    if worker_id is None:  # the parent of a supervised worker has warned, and decides the number of processes
        warn_ignored_settings(application, checked.queues)
        warn_unknown_queues(application, checked.queues)
        processes = processes or application.settings.value("worker.processes")
    if processes is None:
        beside = preflight(application, checked) if worker_id is None else None
        application.run_worker(beside, id=worker_id, **worker_options)
        return
    # The parent resolved `auto` for its terminal; the children must use the same format.
    passed_on = worker_options | {"log_format": format_, "log_level": level, "json": as_json}
    command = [sys.executable, "-m", "tidemill", "worker", *_as_command_line(passed_on)]
    asyncio.run(_supervise(application, [*command, "--", spec], processes, checked))


async def _supervise(app: Tidemill, command: list[str], processes: int, options: WorkerOptions) -> None:
    try:
        async with preflight(app, options):
            await app.supervise(command, processes, until_idle=options.until_idle)
    finally:
        await app.close()


def _as_command_line(options: dict[str, Any]) -> Iterator[str]:
    """Yields the options as arguments for a child process."""
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


MAX_NAMES_SHOWN = 12
"""Maximum number of queues and tasks in the greeting; the rest is counted."""


@click.command()
@click.argument("app", metavar="[MODULE:APP]", required=False, shell_complete=complete_applications)
@with_worker_options(log_format="console")
@with_listen_options
@click.option("--no-web", is_flag=True, help="Do not serve the dashboard and the HTTP API.")
def up(
    app: str | None,
    *,
    log_format: str | None,
    log_level: str | None,
    host: str | None,
    port: int | None,
    no_web: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Run everything an application needs, in one process.

    It runs a worker, the dashboard, and maintenance: retries, delays, leases, flows, schedules and
    pruning. You need nothing else. For more processes or machines use `tidemill worker` and `tidemill
    web`. Without an argument it uses the configured application (TIDEMILL_APP, or app in tidemill.toml)."""
    spec = require_spec(app)
    application = load_application(spec)
    configure_logging(
        application, log_format or ("json" if as_json else _default_log_format(application)), log_level
    )
    worker_options = {name: value for name, value in options.items() if value is not None}
    checked = application.worker_options(**worker_options)
    warn_ignored_settings(application, checked.queues)
    warn_unknown_queues(application, checked.queues)

    links: list[str] = []
    if as_json:
        print_worker_status(application, spec, links)
    else:
        _print_greeting(spec, application, checked, CommandTarget(app), links)
    if no_web:
        application.run_worker(preflight(application, checked), **worker_options)
        return
    with open_listener(application, host, port) as (listener, address):
        dashboard = serve_dashboard(application, listener, links.append, address)
        application.run_worker(preflight(application, checked, dashboard), **worker_options)


def _default_log_format(app: Tidemill) -> str | None:
    """Returns "console" if no log format is configured, because people read the log of `up`. Otherwise
    returns None, which means the configured format."""
    return "console" if app.settings.origin("log.format") == "default" else None


def _print_greeting(
    spec: str, app: Tidemill, options: WorkerOptions, target: CommandTarget, links: list[str]
) -> None:
    @app.on(WorkerStarted)  # not earlier: the store may still prove unusable
    def greet(_: WorkerStarted) -> None:
        for line in _greeting_lines(spec, app, options, target, links):
            echo(line, err=True)


def _greeting_lines(
    spec: str, app: Tidemill, options: WorkerOptions, target: CommandTarget, links: list[str]
) -> Iterator[str]:
    store = "a store of the application's own" if app.has_own_store else str(app.url)
    yield f"{spec} is up, {options.concurrency} jobs at once; nothing else is needed. Ctrl-C stops it."
    if app.url.scheme == "memory" and not app.has_own_store:
        yield "  store   memory://, which ends with this process; sqlite:///jobs.db would keep the jobs"
    else:
        yield f"  store   {store}"
    yield f"  queues  {_join_names([f'{name} (weight {weight})' for name, weight in options.queues.items()])}"
    yield f"  tasks   {_join_names(sorted(app.tasks)) or 'none: decorate a function with @app.task'}"
    yield from (f"  sign in {link}    (once; this is the dashboard)" for link in links)
    yield f"  watch   {target.command('top')}    (then: jobs, queues, explain ID, doctor)"
    if app.tasks:
        task = next(iter(app.tasks.values()))
        yield f"  send    {' '.join([target.command('enqueue'), task.name, *_example_arguments(task)])}"


def _example_arguments(task: TaskDefinition) -> Iterator[str]:
    """Yields `name=…` for each required parameter of the task, for an example command."""
    for parameter in task.payload.parameters:
        if parameter.default is parameter.empty:
            yield f"{parameter.name}=…"


def _join_names(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NAMES_SHOWN} more" if len(names) > MAX_NAMES_SHOWN else ""
    return ", ".join(names[:MAX_NAMES_SHOWN]) + more
