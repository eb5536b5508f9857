"""`tidemill queues empty`: delete every job of a queue, its name typed as a safeguard."""

from __future__ import annotations

import sys

import click

from tidemill.cli import asking, complete
from tidemill.cli.output import echo, note, print_json
from tidemill.cli.progress import counted
from tidemill.cli.target import Target, with_target
from tidemill.core.states import State
from tidemill.inspect.words import plural


@click.command()
@click.argument("name", shell_complete=complete.queues)
@click.option("--confirm", metavar="NAME", help="The name once more, instead of typing it when asked.")
@with_target
def empty(target: Target, name: str, confirm: str | None) -> int:
    """Delete every job of a queue that does not run, ended ones too."""
    view = target.run(lambda app: app.inspect.queue(name))
    there = sum(count for state, count in view.counts.items() if state is not State.RUNNING)
    if not there:
        note(f"nothing to delete: queue {name!r} holds no job that does not run")
        if target.json:
            print_json({"queue": name, "deleted": 0})
        return 1
    typed = confirm if confirm is not None else _typed(name, there)
    if typed != name:
        raise click.UsageError(f"{typed!r} is not the name of the queue, {name!r}: nothing was deleted")
    with counted("deleted", there) as progress:
        gone = target.run(lambda app: app.inspect.empty(name, confirm=typed, progress=progress))
    if target.json:
        print_json({"queue": name, "deleted": gone})
    else:
        echo(f"{plural(gone, 'job')} deleted")
    return 0


def _typed(name: str, there: int) -> str:
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"{plural(there, 'job')} would be deleted, but there is nobody to ask: add --confirm {name}"
        )
    return asking.typed(f"{plural(there, 'job')} of {name} will be deleted; type its name to go on")
