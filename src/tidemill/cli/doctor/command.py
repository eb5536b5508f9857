"""The command: examines, prints, and ends with 1 when something is bad."""

from __future__ import annotations

from collections.abc import Sequence
from socket import gethostname

import click

from tidemill.app import Tidemill
from tidemill.cli.doctor.arrivals import about_arrivals
from tidemill.cli.doctor.finding import Finding
from tidemill.cli.doctor.flows import about_flows
from tidemill.cli.doctor.jobs import about_jobs
from tidemill.cli.doctor.pools import about_pools
from tidemill.cli.doctor.queues import about_queues
from tidemill.cli.doctor.schedules import about_schedules
from tidemill.cli.doctor.settings import about_settings
from tidemill.cli.doctor.store import about_store
from tidemill.cli.doctor.workers import about_workers, about_workers_here
from tidemill.cli.output import echo, print_json
from tidemill.cli.table import Column, print_table
from tidemill.cli.target import Target, with_target
from tidemill.core.terminal_text import one_line
from tidemill.errors import ConfigurationError, StoreError, TidemillError
from tidemill.settings import Effective


@click.command()
@click.option("--here", is_flag=True, help="Only whether a worker of this host lives: for a health check.")
@with_target
def doctor(target: Target, *, here: bool) -> int:
    """Say whether the store, its queues and its workers are well. Exit code 1 when not."""
    app = target.application()
    try:
        findings = target.run(lambda app: _is_here(app) if here else _examine(app, target), app=app)
        settings = [] if here else app.settings.effective(app.queues)
    except (StoreError, ConfigurationError) as error:
        findings = [_unusable(app, error)]
        settings = app.settings.effective(app.queues) if target.json else []
    _show(findings, settings, as_json=target.json)
    return 1 if any(finding.level == "bad" for finding in findings) else 0


async def _examine(app: Tidemill, target: Target) -> list[Finding]:
    overview = await app.inspect.overview()
    return [
        *about_store(str(app.url), overview.store, target),
        *about_settings(app, overview, target),
        *about_workers(overview, target),
        *await about_queues(app, overview, target),
        *about_pools(app, overview, target),
        *await about_jobs(app, overview, target),
        *await about_arrivals(app, overview, target),
        *await about_flows(app, overview, target),
        *await about_schedules(app, overview, target),
    ]


async def _is_here(app: Tidemill) -> list[Finding]:
    """What is wrong elsewhere is no reason to restart this host's worker."""
    return list(about_workers_here(await app.inspect.workers(), gethostname()))


def _unusable(app: Tidemill, error: TidemillError) -> Finding:
    """What a store on a server says of itself begins with where that is."""
    says = str(error) if app.url.server else f"{app.url}: {error}"
    return Finding(about="store", level="bad", says=says)


def _show(findings: Sequence[Finding], settings: Sequence[Effective], *, as_json: bool) -> None:
    if as_json:
        print_json({"findings": findings, "settings": settings})
        return
    for finding in findings:
        echo(f"{finding.level:<4} {one_line(finding.about)}: {one_line(finding.says)}")
        if finding.remedy is not None:
            echo(f"     {one_line(finding.remedy)}")
    if settings:
        echo()
        columns = (Column("setting"), Column("value"), Column("from"))
        print_table(columns, [(s.name, s.value, s.origin) for s in settings])
