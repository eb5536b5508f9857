"""`tidemill alerts`: what is wrong."""

from __future__ import annotations

import click

from tidemill.cli.groups import Group
from tidemill.cli.output import moment, note, print_json
from tidemill.cli.table import Column, print_table
from tidemill.cli.target import Target, with_target

COLUMNS = (
    Column("stage"),
    Column("rule", goes=1, cut="end"),
    Column("what", cut="end", least=20),
    Column("since", goes=2),
    Column("told", goes=3),
)


@click.group(cls=Group, invoke_without_command=True)
@with_target
def alerts(target: Target) -> None:
    """Show what is wrong by the rules of alerts; or send a test message."""
    if click.get_current_context().invoked_subcommand is not None:
        return
    found = target.run(lambda app: app.alerts.states())
    if target.json:
        print_json(found)
    elif found:
        rows = [(one.stage, one.rule, one.sentence, moment(one.since), moment(one.said)) for one in found]
        print_table(COLUMNS, rows)
    else:
        note("nothing is wrong by the rules there are, or no worker has looked yet")
