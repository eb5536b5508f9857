"""`tidemill queues`: all of them at a glance."""

from __future__ import annotations

import click

from tidemill.cli.groups import Group
from tidemill.cli.output import print_json
from tidemill.cli.queues.words import paused, unusual, waited
from tidemill.cli.table import Column, print_table
from tidemill.cli.target import Target, with_target
from tidemill.core.states import State

_GOES = {State.CANCELLED: 7, State.DONE: 6, State.WAITING: 5, State.SCHEDULED: 3}

COLUMNS = (
    Column("queue"),
    *(Column(state, goes=_GOES.get(state, 0), right=True) for state in State),
    Column("oldest", goes=2),
    Column("paused", goes=1, cut="end"),
    Column("settings", goes=4, cut="end"),
)


@click.group(cls=Group, invoke_without_command=True)
@with_target
def queues(target: Target) -> None:
    """Show the queues; or look at one, pause, set or empty it."""
    if click.get_current_context().invoked_subcommand is not None:
        return
    found = target.run(lambda app: app.inspect.queues())
    if target.json:
        print_json(found)
        return
    print_table(
        COLUMNS,
        [
            (
                view.name,
                *(view.counts[state] for state in State),
                waited(view.latency),
                paused(view.pause),
                unusual(view),
            )
            for view in found
        ],
    )
