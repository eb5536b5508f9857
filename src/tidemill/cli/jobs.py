"""`tidemill jobs`: find, show, retry, cancel."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from tidemill.app import Tidemill
from tidemill.cli.output import moment, print_json, print_table, printable
from tidemill.cli.target import Target, with_target
from tidemill.cli.times import duration
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

    async def look(app: Tidemill) -> dict[str, Any]:
        job = await app.job(id).status()
        return as_data(job) | {
            "failed_attempts": await app.store.attempts(id),
            "log": await app.store.logs(id),
        }

    found = target.run(look)
    if target.json:
        print_json(found)
        return
    for field, value in found.items():
        if field not in _INSIDE and value not in (None, "", [], ()):
            click.echo(f"{field + ':':<17} {_shown(field, value)}")


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


def _shown(field: str, value: Any) -> str:
    if field in _TIMES:
        return moment(value)
    if isinstance(value, list | msgspec.Struct):
        return printable(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
    return printable(bytes(value).decode() if isinstance(value, msgspec.Raw) else value)


_TIMES = frozenset({"created", "due", "expires", "started", "finished", "unique_until"})

_INSIDE = frozenset({"seq", "fence", "claim", "number", "lease", "alone", "part", "unique_holds"})
"""What only the store and its workers need; `--json` shows it all the same."""
