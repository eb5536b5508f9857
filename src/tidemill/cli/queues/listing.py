"""`tidemill queues`: all of them at a glance."""

from __future__ import annotations

import click

from tidemill.cli.output import print_json, print_table
from tidemill.cli.queues.words import paused, unusual, waited
from tidemill.cli.target import Target, with_target
from tidemill.core.states import State


@click.group(invoke_without_command=True)
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
        ("queue", *(state.value for state in State), "oldest", "paused", "settings"),
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
