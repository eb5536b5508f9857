"""`tidemill webhooks`: all of them at a glance."""

from __future__ import annotations

import click

from tidemill.cli.groups import Group
from tidemill.cli.output import note, print_json
from tidemill.cli.table import Column, print_table
from tidemill.cli.target import Target, with_target
from tidemill.telling.webhooks import WebhookView

COLUMNS = (
    Column("webhook", cut="end", least=8),
    Column("url", goes=1, cut="end", least=20),
    Column("on", goes=2, cut="end"),
    Column("of", goes=3, cut="end"),
    Column("secret", goes=5),
    Column("origin", goes=4),
    Column("waiting", right=True),
    Column("failed", right=True),
)


@click.group(cls=Group, invoke_without_command=True)
@with_target
def webhooks(target: Target) -> None:
    """Show the webhooks and what waits to be delivered; or add, remove or test one."""
    if click.get_current_context().invoked_subcommand is not None:
        return
    found = target.run(lambda app: app.webhooks.list())
    if target.json:
        print_json(found)
    elif found:
        print_table(COLUMNS, [_row(view) for view in found])
    else:
        note("there are no webhooks yet; a worker writes those that code declares when it starts")


def _row(view: WebhookView) -> tuple[object, ...]:
    of = ", ".join((*view.tasks, *view.queues, *view.flows, *view.pools)) or "all"
    events = ", ".join(view.on) if view.event is None else view.event
    return view.name, view.url, events, of, view.secret, view.origin, view.waiting, view.failed
