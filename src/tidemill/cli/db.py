"""`tidemill db`: describes, checks, backs up, copies and compacts the store."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import click

from tidemill.app import Tidemill
from tidemill.cli.output import echo, format_size, note, print_fields, print_json
from tidemill.cli.root import CommandGroup
from tidemill.cli.store_options import CommandTarget, require_shared_store, with_target
from tidemill.cli.terminal import count_progress, share_progress
from tidemill.inspect.formatting import pluralize
from tidemill.inspect.store_copy import CopyReport
from tidemill.inspect.store_copy import copy_store as copy_all


@click.group(cls=CommandGroup)
@with_target
def db(target: CommandTarget) -> None:
    """Describe, check, back up, copy or compact the store."""


@click.command()
@with_target
def info(target: CommandTarget) -> None:
    """Show the store's kind, location, schema version and size."""
    facts = target.run(lambda app: app.store.describe())
    if target.json:
        print_json(facts)
        return
    print_fields(
        {
            "store": facts.kind,
            "engine": facts.engine,
            "location": facts.location,
            "schema": facts.schema,
            "size": format_size(facts.bytes),
            "free inside": format_size(facts.free_bytes),
        }
    )
    for warning in facts.warnings:
        print_fields({"warning": warning})


@click.command()
@with_target
def check(target: CommandTarget) -> int:
    """Read the whole store and report damage. Exit code 1 if it is damaged.

    Jobs continue meanwhile."""
    with share_progress("checking"):
        damage = target.run(lambda app: app.store.check())
    if target.json:
        print_json({"whole": not damage, "damage": damage})
    else:
        for sentence in damage:
            echo(sentence)
        echo("the store is damaged: keep a copy of it, and go back to a backup" if damage else "whole")
    return 1 if damage else 0


@click.command()
@click.argument("copy", metavar="TARGET", type=click.Path(path_type=Path))
@with_target
def backup(target: CommandTarget, copy: Path) -> None:
    """Copy the store to a new file, as one consistent snapshot. Jobs continue meanwhile."""
    if not copy.absolute().parent.is_dir():
        raise click.UsageError(f"target: there is no folder {copy.absolute().parent}; make it first")
    if copy.exists():
        raise click.UsageError(f"target: {copy} is there already; name a new file, or move that one away")
    try:
        with share_progress("copying") as progress:
            target.run(lambda app: app.store.backup(copy, progress))
    except KeyboardInterrupt:
        # The copy gets its final name only when it is complete.
        left = f"{copy} is whole all the same" if copy.exists() else "nothing was copied"
        note(f"interrupted: {left}")
        raise
    if target.json:
        print_json({"target": str(copy.absolute()), "bytes": copy.stat().st_size})
    else:
        echo(f"copied to {copy} ({format_size(copy.stat().st_size)}); use it as sqlite:///{quote(str(copy))}")


@click.command()
@click.argument("into", metavar="TO")
@click.option("--resume", is_flag=True, help="Continue an interrupted copy: TO contains its first part.")
@with_target
def copy(target: CommandTarget, into: str, *, resume: bool) -> int:
    """Copy the whole store into an empty one, given by its URL. Stop workers and producers first. Exit code 1
    if the two stores differ afterwards."""
    other = Tidemill(into)
    require_shared_store(other)
    try:
        copied = target.run(lambda app: _copy_into(app, other, resume=resume))
    except KeyboardInterrupt:
        note("TO contains the first part of the copy: the same command with --resume continues")
        raise
    if target.json:
        print_json(copied)
    else:
        _print_report(copied)
    return 1 if copied.differences else 0


async def _copy_into(app: Tidemill, other: Tidemill, *, resume: bool) -> CopyReport:
    try:
        into = await other.client.store(declare=False)
        jobs = sum(sum(states.values()) for states in (await app.store.counts()).values())
        with count_progress("copying", jobs) as on_progress:
            return await copy_all(app.store, into, resume=resume, on_progress=on_progress)
    finally:
        await other.close()


def _print_report(copied: CopyReport) -> None:
    kinds = ("job", "flow", "schedule", "record", "queue", "pool", "arrival")
    words = ", ".join(pluralize(getattr(copied, f"{kind}s"), kind) for kind in kinds)
    echo(f"copied {words} and {pluralize(copied.ids, 'known id')}")
    if copied.reclaimed:
        echo(f"reclaimed first, from dead workers: {pluralize(copied.reclaimed, 'job')}")
    for sentence in copied.differences:
        echo(sentence)
    if copied.differences:
        echo(
            "the source changed during the copy: stop its writers; --resume copies new jobs, but if jobs "
            "changed, start again with an empty store"
        )


@click.command()
@with_target
def compact(target: CommandTarget) -> None:
    """Return the space of pruned jobs to the operating system. Workers and callers wait meanwhile."""

    async def work(app: Tidemill) -> tuple[int | None, int | None]:
        before = (await app.store.describe()).bytes
        await app.store.compact()
        return before, (await app.store.describe()).bytes

    with share_progress("compacting"):
        before, after = target.run(work)
    if target.json:
        print_json({"bytes_before": before, "bytes": after})
    else:
        echo(f"{format_size(before) or 'unknown'} before, {format_size(after) or 'unknown'} now")


for _command in (info, check, backup, copy, compact):
    db.add_command(_command)
