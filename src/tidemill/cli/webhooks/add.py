"""`tidemill webhooks add`: tell somebody what happens."""

from __future__ import annotations

import click

from tidemill.cli import complete
from tidemill.cli.output import echo, note, print_json
from tidemill.cli.queues.words import who
from tidemill.cli.target import Target, with_target
from tidemill.telling.webhook import SECRET, What, declared

_EVENTS = [what.value for what in What]


@click.command()
@click.argument("name")
@click.argument("address", metavar="ADDRESS")
@click.option(
    "--on",
    type=click.Choice(_EVENTS),
    multiple=True,
    default=("job.done", "job.failed"),
    help="What it is told of; may be repeated. Default: job.done and job.failed.",
)
@click.option("--task", "tasks", multiple=True, shell_complete=complete.tasks, help="Only jobs of that task.")
@click.option("--queue", "queues", multiple=True, shell_complete=complete.queues, help="Only of that queue.")
@click.option(
    "--flow", "flows", multiple=True, shell_complete=complete.flow_names, help="Only flows of that name."
)
@click.option("--pool", "pools", multiple=True, shell_complete=complete.pools, help="Only that pool.")
@click.option(
    "--secret",
    metavar="VARIABLE",
    default=SECRET,
    show_default=True,
    help="The environment variable that has the secret where workers run; its name begins with that.",
)
@with_target
def add(
    target: Target,
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
    """Make a webhook, or make it anew; it holds within seconds."""
    wanted = declared(
        name=name,
        url=address,
        on=on,
        tasks=tasks,
        queues=queues,
        flows=flows,
        pools=pools,
        secret=secret,
    )
    view = target.run(lambda app: app.webhooks.add(wanted, by=who()))
    if target.json:
        print_json(view)
    else:
        echo(f"{view.name} is told of {', '.join(view.on)}")
        note(f"workers sign with the environment variable {view.secret}")
