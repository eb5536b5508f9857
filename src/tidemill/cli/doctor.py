"""`tidemill doctor`: is everything well, and if not, what to do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

import click
import msgspec

from tidemill.app import Tidemill
from tidemill.cli.output import print_json, printable
from tidemill.cli.target import Target, with_target
from tidemill.contract.reader import WorkerInfo
from tidemill.contract.store import Store
from tidemill.core.filters import Filter
from tidemill.core.states import PENDING, State
from tidemill.errors import StoreError

LOOKED_AT = 1000
"""How many running jobs are looked at for expired leases, and scheduled ones at a time."""

LATE = 60.0
"""A worker promotes a job within a second or so of its due time; after a minute nobody does."""


_START_ONE = "no worker is running; start one: tidemill worker module:app"


class Finding(msgspec.Struct, frozen=True):
    """`note` is worth reading, `bad` needs somebody."""

    about: str
    level: Literal["ok", "note", "bad"]
    says: str


@click.command()
@with_target
def doctor(target: Target) -> int:
    """Say whether the store, its queues and its workers are well. Exit code 1 when not."""
    application = target.application()
    try:
        findings = target.run(_examine)
    except StoreError as error:
        findings = [Finding("store", "bad", f"{application.url}: {error}")]
    if target.json:
        print_json(findings)
    else:
        for finding in findings:
            click.echo(f"{finding.level:<4} {finding.about}: {printable(finding.says)}")
    return 1 if any(finding.level == "bad" for finding in findings) else 0


async def _examine(app: Tidemill) -> list[Finding]:
    return [finding async for finding in _findings(app)]


async def _findings(app: Tidemill) -> AsyncIterator[Finding]:
    yield Finding("store", "ok", f"{app.url} answers, and its schema fits this version")
    if app.url.scheme == "sqlite":
        yield _sqlite_version()
    workers = await app.store.workers()
    yield _workers(workers)
    async for finding in _queues(app.store, workers):
        yield finding
    yield await _leases(app.store)


def _sqlite_version() -> Finding:
    import apsw

    return Finding("sqlite", "ok", f"version {apsw.sqlite_lib_version()}, bundled with apsw")


def _workers(workers: list[WorkerInfo]) -> Finding:
    if not workers:
        return Finding("workers", "note", _START_ONE)
    slots = sum(worker.concurrency for worker in workers)
    return Finding(
        "workers", "ok", f"{len(workers)} with {slots} slots, {sum(w.holds for w in workers)} jobs"
    )


async def _queues(store: Store, workers: list[WorkerInfo]) -> AsyncIterator[Finding]:
    served = {queue for worker in workers for queue in worker.queues}
    now = (await store.read_clock()).wall
    counts = await store.counts()
    for info in await store.queues():
        has = counts.get(info.name, {})
        pending = sum(has.get(state, 0) for state in PENDING)
        says = f"{pending} pending, {has.get(State.RUNNING, 0)} running, {has.get(State.FAILED, 0)} failed"
        late = await _late(store, info.name, now) if has.get(State.SCHEDULED) else None
        if late is not None:
            says += f"; scheduled jobs are overdue by more than a minute, such as {late}"
        about = f"queue {info.name}"
        if pending and workers and info.name not in served:
            yield Finding(about, "bad", f"{says}; no worker serves it: add it to a worker's --queues")
        elif pending and info.pause is not None and info.pause.closed(now):
            yield Finding(about, "note", f"{says}; paused: tidemill queues resume {info.name}")
        elif not workers and (has.get(State.READY) or late is not None):
            yield Finding(about, "bad", f"{says}; {_START_ONE}")
        else:
            yield Finding(about, "ok", says)


async def _late(store: Store, queue: str, now: float) -> str | None:
    """A scheduled job that should have become ready long ago. The newest come first and are the
    least likely, so all are looked through."""
    cursor = None
    while True:
        page = await store.find(Filter(queue=queue, states=(State.SCHEDULED,)), LOOKED_AT, cursor)
        for job in page.jobs:
            if job.due < now - LATE:
                return job.id
        if page.cursor is None:
            return None
        cursor = page.cursor


async def _leases(store: Store) -> Finding:
    """A lease that has been over for a while means that nobody reclaims."""
    now = (await store.read_clock()).boot
    running = (await store.find(Filter(states=(State.RUNNING,)), LOOKED_AT)).jobs
    over = [job.id for job in running if job.lease <= now]
    if not over:
        return Finding("leases", "ok", f"{len(running)} running jobs, every lease runs")
    return Finding(
        "leases",
        "bad",
        f"{len(over)} running jobs are past their lease, such as {over[0]}; a running worker takes them back",
    )
