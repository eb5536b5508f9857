"""`tidemill up`: everything an application needs, in one process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from tidemill.app import Tidemill
from tidemill.cli.application import load, required
from tidemill.cli.installed import offered
from tidemill.cli.milestones import tell_milestones
from tidemill.cli.minding import mind_ignored, mind_unknown, minded
from tidemill.cli.output import echo
from tidemill.cli.payloads import parameters
from tidemill.cli.running import log_to_stderr, runs_jobs
from tidemill.cli.serving import beside, listening, serves
from tidemill.cli.target import Target
from tidemill.tasks.definition import TaskDefinition
from tidemill.telemetry.events import WorkerStarted
from tidemill.worker.options import WorkerOptions

SHOWN = 12
"""So many queues and tasks are named; the rest is counted."""


@click.command()
@click.argument("app", metavar="[MODULE:APP]", required=False, shell_complete=offered)
@runs_jobs(log_format="console")
@serves
@click.option("--no-web", is_flag=True, help="Without the dashboard and the HTTP API.")
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

    A worker, the dashboard, and the services beside them: retries, delays, leases, flows, schedules and
    pruning are looked after here, and nothing else has to be started. For more processes or machines run
    `tidemill worker` and `tidemill web` there instead. Without an argument it is the application that is
    set (TIDEMILL_APP, or app in tidemill.toml)."""
    spec = required(app)
    application = load(spec)
    log_to_stderr(application, log_format or ("json" if as_json else _for_people(application)), log_level)
    given = {name: value for name, value in options.items() if value is not None}
    checked = application.worker_options(**given)
    mind_ignored(application, checked.queues)
    mind_unknown(application, checked.queues)

    links: list[str] = []
    if as_json:
        tell_milestones(application, spec, links)
    else:
        _greet(spec, application, checked, Target(app), links)
    if no_web:
        application.run_worker(minded(application, checked), **given)
        return
    with listening(application, host, port) as (found, address):
        dashboard = beside(application, found, links.append, address)
        application.run_worker(minded(application, checked, dashboard), **given)


def _for_people(app: Tidemill) -> str | None:
    """Whoever types `up` looks on; programs are told to log JSON."""
    return "console" if app.settings.origin("log.format") == "default" else None


def _greet(spec: str, app: Tidemill, options: WorkerOptions, target: Target, links: list[str]) -> None:
    @app.on(WorkerStarted)  # not before: until then the store may turn out to be unusable
    def greet(_: WorkerStarted) -> None:
        for line in _greeting(spec, app, options, target, links):
            echo(line, err=True)


def _greeting(
    spec: str, app: Tidemill, options: WorkerOptions, target: Target, links: list[str]
) -> Iterator[str]:
    store = "a store of the application's own" if app.brings_store else str(app.url)
    yield f"{spec} is up, {options.concurrency} jobs at once; nothing else is needed. Ctrl-C stops it."
    if app.url.scheme == "memory" and not app.brings_store:
        yield "  store   memory://, which ends with this process; sqlite:///jobs.db would keep the jobs"
    else:
        yield f"  store   {store}"
    yield f"  queues  {_listed([f'{name} (weight {weight})' for name, weight in options.queues.items()])}"
    yield f"  tasks   {_listed(sorted(app.tasks)) or 'none: decorate a function with @app.task'}"
    yield from (f"  sign in {link}    (once; this is the dashboard)" for link in links)
    yield f"  look    {target.command('top')}    (then: jobs, queues, explain ID, doctor)"
    if app.tasks:
        task = next(iter(app.tasks.values()))
        yield f"  send    {' '.join([target.command('enqueue'), task.name, *_arguments(task)])}"


def _arguments(task: TaskDefinition) -> Iterator[str]:
    """Those that have to be given."""
    for parameter in parameters(task):
        if parameter.default is parameter.empty:
            yield f"{parameter.name}=…"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
