"""`tidemill db copy`: everything of the store into another."""

from __future__ import annotations

import click

from tidemill.app import Tidemill
from tidemill.cli.output import echo, note, print_json
from tidemill.cli.progress import counted
from tidemill.cli.target import Target, require_outside, with_target
from tidemill.inspect.copying import Copied
from tidemill.inspect.copying import copy as copy_all
from tidemill.inspect.words import plural


@click.command()
@click.argument("into", metavar="TO")
@click.option("--resume", is_flag=True, help="TO holds the beginning of a copy that was interrupted: go on.")
@with_target
def copy(target: Target, into: str, *, resume: bool) -> int:
    """Copy everything of the store into an empty one, given by its URL.

    End workers and producers first. Exit code 1 when the two stores differ in the end."""
    other = Tidemill(into)
    require_outside(other)
    try:
        copied = target.run(lambda app: _copied(app, other, resume=resume))
    except KeyboardInterrupt:
        note("what is in TO is the beginning: the same command with --resume goes on")
        raise
    if target.json:
        print_json(copied)
    else:
        _tell(copied)
    return 1 if copied.differences else 0


async def _copied(app: Tidemill, other: Tidemill, *, resume: bool) -> Copied:
    try:
        into = await other.client.store(declare=False)
        jobs = sum(sum(states.values()) for states in (await app.store.counts()).values())
        with counted("copying", jobs) as tell:
            return await copy_all(app.store, into, resume=resume, tell=tell)
    finally:
        await other.close()


def _tell(copied: Copied) -> None:
    kinds = ("job", "flow", "schedule", "record", "queue", "pool", "arrival")
    words = ", ".join(plural(getattr(copied, f"{kind}s"), kind) for kind in kinds)
    echo(f"copied {words} and {plural(copied.ids, 'remembered id')}")
    if copied.reclaimed:
        echo(f"taken back first, of workers that had died: {plural(copied.reclaimed, 'job')}")
    for sentence in copied.differences:
        echo(sentence)
    if copied.differences:
        echo(
            "something changed while it was copied: end what writes to the source; jobs that came since then "
            "come with --resume, for those that changed begin anew with an empty store"
        )
