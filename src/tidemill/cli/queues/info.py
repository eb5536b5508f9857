"""`tidemill queues info`: everything about one queue."""

from __future__ import annotations

import click
import msgspec

from tidemill.cli import complete
from tidemill.cli.output import moment, print_fields, print_json
from tidemill.cli.pools.words import drained
from tidemill.cli.queues.words import overridden, paused, setting, waited
from tidemill.cli.target import Target, with_target
from tidemill.inspect.views import QueueView


@click.command()
@click.argument("name", shell_complete=complete.queues)
@with_target
def info(target: Target, name: str) -> None:
    """Show what one queue holds, did and is set to."""
    view = target.run(lambda app: app.inspect.queue(name))
    if target.json:
        print_json(view)
    else:
        print_fields(_fields(view, target))


def _fields(view: QueueView, target: Target) -> dict[str, object]:
    counts = ", ".join(f"{count} {state}" for state, count in view.counts.items() if count)
    settings = msgspec.structs.asdict(view.settings)
    return {
        "queue": view.name,
        "jobs": counts or "none",
        "retrying": view.retrying or None,
        "oldest ready": waited(view.latency) or None,
        "drained": drained(view.forecast) or None,
        "next due": moment(view.next_due) or None,
        "last ended": moment(view.last_ended) or None,
        "last 24 h": f"{view.processed} processed, {view.failed} of them failed, {view.cancelled} cancelled, "
        f"{view.retried} attempts retried, {view.reclaimed} reclaimed",
        "paused": paused(view.pause) or None,
        "settings": " ".join(setting(name, value) for name, value in settings.items()),
        "override": overridden(view.override) if view.override else None,
        "workers": ", ".join(view.workers) or f"none: {target.worker_command()} starts one",
    }
