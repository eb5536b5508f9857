"""`tidemill jobs`: find, show, retry, cancel."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from tidemill.app import Tidemill
from tidemill.cli.output import moment, print_json, print_table
from tidemill.cli.record import lines_about
from tidemill.cli.target import Target, with_target
from tidemill.cli.times import duration
from tidemill.contract.reader import AttemptRecord, LogLine
from tidemill.core.changes import Cancel, Change, RetryNow
from tidemill.core.filters import Filter
from tidemill.core.job import Job
from tidemill.core.states import State
from tidemill.errors import JobNotFound


@click.group(invoke_without_command=True)
@click.option("--queue", help="Only jobs of this queue.")
@click.option(
    "--state", "states", multiple=True, type=click.Choice([s.value for s in State]), help="May be repeated."
)
@click.option("--task", help="Only jobs of this task.")
@click.option("--key", help="Only jobs with this key.")
@click.option("--tag", help="Only jobs with this tag.")
@click.option("--since", callback=duration, help="Only jobs made in the last … (10m, 2h).")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 10_000))
@click.option("--cursor", type=int, help="Go on where the last page ended.")
@with_target
def jobs(target: Target, *, limit: int, cursor: int | None, since: float | None, **wanted: Any) -> None:
    """Find jobs, newest first; or look at one, retry or cancel some."""
    if click.get_current_context().invoked_subcommand is not None:
        return
    states = tuple(State(state) for state in wanted.pop("states")) or None

    async def find(app: Tidemill) -> Any:
        after = None if since is None else (await app.store.read_clock()).wall - since
        return await app.store.find(Filter(states=states, since=after, **wanted), limit, cursor)

    page = target.run(find)
    if target.json:
        print_json({"jobs": [as_data(job) for job in page.jobs], "cursor": page.cursor})
        return
    print_table(
        ("id", "queue", "task", "state", "attempts", "created", "note"),
        [(j.id, j.queue, j.task, j.state, j.attempts, moment(j.created), _remark(j)) for j in page.jobs],
    )
    if page.cursor is not None:
        click.echo(f"there are more: --cursor {page.cursor}", err=True)


@jobs.command()
@click.argument("id")
@with_target
def show(target: Target, id: str) -> None:  # noqa: A002 - the word for it
    """Everything known about one job."""

    async def look(app: Tidemill) -> tuple[dict[str, Any], list[AttemptRecord], list[LogLine]]:
        job = await app.job(id).status()
        return as_data(job), await app.store.attempts(id), await app.store.logs(id)

    record, attempts, log = target.run(look)
    if target.json:
        print_json(record | {"failed_attempts": attempts, "log": log})
        return
    for line in lines_about(record, attempts, log):
        click.echo(line)


@jobs.command()
@click.argument("ids", nargs=-1, required=True)
@with_target
def retry(target: Target, ids: tuple[str, ...]) -> None:
    """Run ended jobs again, from their first attempt."""
    _amend(target, ids, RetryNow(), "retried", "not ended yet")


@jobs.command()
@click.argument("ids", nargs=-1, required=True)
@click.option("--reason", default="cancelled by hand", show_default=True)
@with_target
def cancel(target: Target, ids: tuple[str, ...], reason: str) -> None:
    """Cancel jobs that have not ended; a running one is told to stop."""
    _amend(target, ids, Cancel(reason), "cancelled", "already ended")


def _amend(target: Target, ids: tuple[str, ...], change: Change, did: str, could_not: str) -> None:
    amended = target.run(lambda app: app.store.amend(Filter(ids=ids), change, len(ids)))
    missing = [id_ for id_ in ids if id_ not in {*amended.changed, *amended.unchanged}]
    if target.json:
        print_json({did: amended.changed, "unchanged": amended.unchanged, "missing": missing})
    else:
        for id_ in amended.changed:
            click.echo(f"{id_} {did}")
        for id_ in amended.unchanged:
            click.echo(f"{id_} {could_not}")
    if missing:
        raise JobNotFound(f"there is no job {', '.join(missing)}: the id is wrong, or it was pruned")


def as_data(job: Job) -> dict[str, Any]:
    """The record with payload and result as the JSON they are."""
    data: dict[str, Any] = {field: getattr(job, field) for field in job.__struct_fields__}
    data["payload"] = msgspec.Raw(job.payload)
    data["result"] = None if job.result is None else msgspec.Raw(job.result)
    return data


def _remark(job: Job) -> str:
    if job.error is not None:
        return f"{job.error.type}: {job.error.message}"
    return job.reason or job.note or ""
