"""`tidemill doctor`: runs all checks and prints the findings. This module checks the store and the
settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from socket import gethostname

import click

from tidemill.app import Tidemill
from tidemill.cli.doctor_jobs import (
    check_arrivals,
    check_dependencies,
    check_flows,
    check_jobs,
    check_schedules,
)
from tidemill.cli.doctor_queues import (
    Finding,
    check_pools,
    check_queues,
    check_workers,
    check_workers_of_host,
)
from tidemill.cli.output import echo, format_size, print_json
from tidemill.cli.store_options import CommandTarget, with_target
from tidemill.cli.terminal import Column, print_table
from tidemill.contract.store import StoreFacts
from tidemill.core.redaction import escape_newlines
from tidemill.core.validation import close_matches
from tidemill.errors import ConfigurationError, StoreError, TidemillError
from tidemill.inspect.views import Overview
from tidemill.settings import EffectiveSetting
from tidemill.settings.settings import find_overruled_url

MIN_FREE_SHARE_AND_BYTES = 0.5, 64 * 1024 * 1024
"""Free space is reported only if it exceeds both this share of the file and this many bytes."""


def check_store(url: str, facts: StoreFacts, target: CommandTarget) -> Iterator[Finding]:
    large = f", {format_size(facts.bytes)}" if facts.bytes is not None else ""
    yield Finding(subject="store", level="ok", message=f"{url} answers: {facts.engine}{large}")
    for warning in facts.warnings:
        yield Finding(subject="store", level="bad", message=warning)
    min_share, min_bytes = MIN_FREE_SHARE_AND_BYTES
    free = facts.free_bytes or 0
    if facts.bytes and free >= min_bytes and free >= min_share * facts.bytes:
        yield Finding(
            subject="store",
            level="note",
            message=f"{format_size(free)} of {format_size(facts.bytes)} are free inside the file",
            remedy=f"give them back when it is quiet: {target.command('db', 'compact')}",
        )


def check_settings(app: Tidemill, overview: Overview, target: CommandTarget) -> Iterator[Finding]:
    read = app.settings.file
    message = f"{read.absolute()} was read" if read else f"there is no settings file in {Path.cwd()}"
    yield Finding(subject="settings", level="ok", message=message)
    queues = {*app.queues, *(task.queue for task in app.tasks.values()), *(q.name for q in overview.queues)}
    for ignored in app.settings.unread(queues):
        yield Finding(subject="settings", level="note", message=str(ignored))
    if not target.url and (url := find_overruled_url(app.settings, app.url)):
        yield Finding(subject="settings", level="note", message=f"{url.setting} is ignored: {url.why}")
    if app.tasks:  # without tasks nothing is known about the producers
        yield from _check_unused_queues(app, overview)


def _check_unused_queues(app: Tidemill, overview: Overview) -> Iterator[Finding]:
    """Yields a finding for each queue with settings but without tasks and jobs; its name may be mistyped."""
    of_tasks = {task.queue for task in app.tasks.values()}
    had_jobs = {view.name for view in overview.queues if view.last_ended or any(view.counts.values())}
    known = of_tasks | app.declared_in_code
    for name in app.settings.queues:
        if name in known | had_jobs:
            continue
        near = close_matches(name, known)
        yield Finding(
            subject="settings",
            level="note",
            message=f"queues.{name} is set, but no task is on this queue and it has had no job",
            remedy=f"did you mean queues.{near[0]}?" if near else "correct the name, or remove it",
        )


@click.command()
@click.option(
    "--here", is_flag=True, help="Only check that a worker of this host is alive; for a health check."
)
@with_target
def doctor(target: CommandTarget, *, here: bool) -> int:
    """Check the store, its queues and its workers. Exit code 1 if something is wrong."""
    app = target.application()
    try:
        findings = target.run(
            lambda app: _check_this_host(app) if here else _run_checks(app, target), app=app
        )
        settings = [] if here else app.settings.effective(app.queues)
    except (StoreError, ConfigurationError) as error:
        findings = [_unusable_store(app, error)]
        settings = app.settings.effective(app.queues) if target.json else []
    _print_findings(findings, settings, as_json=target.json)
    return 1 if any(finding.level == "bad" for finding in findings) else 0


async def _run_checks(app: Tidemill, target: CommandTarget) -> list[Finding]:
    overview = await app.inspect.overview()
    return [
        *check_store(str(app.url), overview.store, target),
        *check_settings(app, overview, target),
        *check_workers(overview, target),
        *await check_queues(app, overview, target),
        *check_pools(app, overview, target),
        *await check_jobs(app, overview, target),
        *await check_dependencies(app, overview),
        *await check_arrivals(app, overview, target),
        *await check_flows(app, overview, target),
        *await check_schedules(app, overview, target),
    ]


async def _check_this_host(app: Tidemill) -> list[Finding]:
    """Returns findings about the workers of this host only, for a health check."""
    return list(check_workers_of_host(await app.inspect.workers(), gethostname()))


def _unusable_store(app: Tidemill, error: TidemillError) -> Finding:
    """Returns a finding of level "bad" that says why the store cannot be used. The message contains the
    store's address."""
    message = str(error) if app.url.server else f"{app.url}: {error}"
    return Finding(subject="store", level="bad", message=message)


def _print_findings(
    findings: Sequence[Finding], settings: Sequence[EffectiveSetting], *, as_json: bool
) -> None:
    if as_json:
        print_json({"findings": findings, "settings": settings})
        return
    for finding in findings:
        echo(f"{finding.level:<4} {escape_newlines(finding.subject)}: {escape_newlines(finding.message)}")
        if finding.remedy is not None:
            echo(f"     {escape_newlines(finding.remedy)}")
    if settings:
        echo()
        columns = (Column("setting"), Column("value"), Column("from"))
        print_table(columns, [(s.name, s.value, s.origin) for s in settings])
