"""`tidemill webhooks` and `tidemill alerts`: list and test webhooks and alerts, add and remove webhooks."""

from __future__ import annotations

import click

from tidemill.cli import completion
from tidemill.cli.output import echo, format_time, note, print_json
from tidemill.cli.overrides import current_operator
from tidemill.cli.root import CommandGroup
from tidemill.cli.store_options import CommandTarget, with_target
from tidemill.cli.terminal import Column, print_table
from tidemill.notifications.webhook_definitions import DEFAULT_SECRET_VARIABLE, WebhookEvent, parse_webhook
from tidemill.notifications.webhooks import WebhookView, webhook_not_found

WEBHOOK_COLUMNS = (
    Column("webhook", truncate="end", min_width=8),
    Column("url", drop_order=1, truncate="end", min_width=20),
    Column("on", drop_order=2, truncate="end"),
    Column("of", drop_order=3, truncate="end"),
    Column("secret", drop_order=5),
    Column("origin", drop_order=4),
    Column("waiting", right=True),
    Column("failed", right=True),
)


@click.group(cls=CommandGroup, invoke_without_command=True)
@with_target
def webhooks(target: CommandTarget) -> None:
    """Show the webhooks and their pending deliveries; or add, remove or test one."""
    if click.get_current_context().invoked_subcommand is not None:
        return
    found = target.run(lambda app: app.webhooks.list())
    if target.json:
        print_json(found)
    elif found:
        print_table(WEBHOOK_COLUMNS, [_webhook_row(view) for view in found])
    else:
        note("there are no webhooks yet; a worker stores the declared ones when it starts")


def _webhook_row(view: WebhookView) -> tuple[object, ...]:
    of = ", ".join((*view.tasks, *view.queues, *view.flows, *view.pools)) or "all"
    events = ", ".join(view.on) if view.event is None else view.event
    return view.name, view.url, events, of, view.secret, view.origin, view.waiting, view.failed


_EVENTS = [what.value for what in WebhookEvent]


@click.command()
@click.argument("name")
@click.argument("address", metavar="ADDRESS")
@click.option(
    "--on",
    type=click.Choice(_EVENTS),
    multiple=True,
    default=("job.done", "job.failed"),
    help="The events to deliver; may be repeated. Default: job.done and job.failed.",
)
@click.option(
    "--task", "tasks", multiple=True, shell_complete=completion.complete_tasks, help="Only jobs of this task."
)
@click.option(
    "--queue",
    "queues",
    multiple=True,
    shell_complete=completion.complete_queues,
    help="Only jobs of this queue.",
)
@click.option(
    "--flow",
    "flows",
    multiple=True,
    shell_complete=completion.complete_flow_names,
    help="Only flows with this name.",
)
@click.option(
    "--pool", "pools", multiple=True, shell_complete=completion.complete_pools, help="Only this pool."
)
@click.option(
    "--secret",
    metavar="VARIABLE",
    default=DEFAULT_SECRET_VARIABLE,
    show_default=True,
    help="The environment variable with the signing secret, as set for workers; names start with this one.",
)
@with_target
def add(
    target: CommandTarget,
    name: str,
    address: str,
    *,
    on: tuple[str, ...],
    tasks: tuple[str, ...],
    queues: tuple[str, ...],
    flows: tuple[str, ...],
    pools: tuple[str, ...],
    secret: str,
) -> None:
    """Create or replace a webhook. It is active within seconds."""
    webhook = parse_webhook(
        name=name,
        url=address,
        on=on,
        tasks=tasks,
        queues=queues,
        flows=flows,
        pools=pools,
        secret=secret,
    )
    view = target.run(lambda app: app.webhooks.add(webhook, by=current_operator()))
    if target.json:
        print_json(view)
    else:
        echo(f"{view.name} receives {', '.join(view.on)}")
        note(f"workers sign with the environment variable {view.secret}")


@click.command()
@click.argument("name", shell_complete=completion.complete_webhooks)
@with_target
def remove(target: CommandTarget, name: str) -> None:
    """Remove a webhook and its pending deliveries. If code declares it, the next worker start restores it."""
    if not target.run(lambda app: app.webhooks.remove(name)):
        raise webhook_not_found(name)
    if target.json:
        print_json({"webhook": name, "removed": True})
    else:
        echo(f"{name} is removed")


@click.command("test")
@click.argument("name", shell_complete=completion.complete_webhooks)
@with_target
def test_webhook(target: CommandTarget, name: str) -> None:
    """Enqueue a delivery of the event "test", which a worker sends. Prints the id of its job."""
    job = target.run(lambda app: app.webhooks.test(name))
    if target.json:
        print_json({"webhook": name, "job": job})
    else:
        echo(job)
        note(f"its outcome: {target.command('jobs', 'show', job)}")


for _command in (add, remove, test_webhook):
    webhooks.add_command(_command)


ALERT_COLUMNS = (
    Column("stage"),
    Column("rule", drop_order=1, truncate="end"),
    Column("what", truncate="end", min_width=20),
    Column("since", drop_order=2),
    Column("notified", drop_order=3),
)


@click.group(cls=CommandGroup, invoke_without_command=True)
@with_target
def alerts(target: CommandTarget) -> None:
    """Show the active alerts; or send a test message."""
    if click.get_current_context().invoked_subcommand is not None:
        return
    found = target.run(lambda app: app.alerts.states())
    if target.json:
        print_json(found)
    elif found:
        rows = [
            (alert.stage, alert.rule, alert.sentence, format_time(alert.since), format_time(alert.last_sent))
            for alert in found
        ]
        print_table(ALERT_COLUMNS, rows)
    else:
        note("no alert is active, or no worker has evaluated the rules yet")


@click.command("test")
@with_target
def test_alerts(target: CommandTarget) -> None:
    """Send a test message directly to every configured channel."""
    found = target.run(lambda app: app.alerts.test())
    if target.json:
        print_json(found)
    elif not found:
        note("no channel is configured here; see the settings of alerts")
    for name, problem in {} if target.json else found.items():
        echo(f"{name}: sent" if problem is None else f"{name}: {problem}")
    if not found or any(found.values()):
        raise click.exceptions.Exit(1)


alerts.add_command(test_alerts)
