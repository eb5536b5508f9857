"""`tidemill schedules info`: everything about one."""

from __future__ import annotations

import click

from tidemill.app import Tidemill
from tidemill.cli import complete
from tidemill.cli.output import echo, moment, print_fields, print_json
from tidemill.cli.schedules.words import outcome, overridden, rule, state
from tidemill.cli.secrets import Redaction, with_secrets
from tidemill.cli.target import Target, with_target
from tidemill.inspect.words import duration
from tidemill.schedules.views import ScheduleView


@click.command()
@click.argument("name", shell_complete=complete.schedules)
@with_target
@with_secrets
def info(target: Target, name: str, *, redaction: Redaction) -> None:
    """Show one schedule, its coming ticks and its last ones."""

    async def look(app: Tidemill) -> ScheduleView:
        return redaction.schedule(app, await app.schedules.get(name))

    view = target.run(look)
    if target.json:
        print_json(view)
        return
    print_fields(_fields(view))
    for past in reversed(view.history):
        job = f" {past.job}" if past.job else ""
        echo(f"  {moment(past.tick)} {outcome(past)}{job}")


def _fields(view: ScheduleView) -> dict[str, object]:
    settings = view.settings
    return {
        "schedule": view.name,
        "state": state(view),
        "ticks": rule(settings),
        "declared": rule(view.declared) if view.override is not None else None,
        "override": overridden(view.override) if view.override is not None else None,
        "task": view.task,
        "arguments": bytes(view.arguments).decode(),
        "start": moment(settings.start) or None,
        "end": moment(settings.end) or None,
        "catch-up": settings.catch_up,
        "overlap": settings.overlap,
        "jitter": duration(settings.jitter) if settings.jitter else None,
        "made": f"{moment(view.created)}, {view.origin}",
        "next": ", ".join(moment(tick) for tick in view.next) or "none",
        "history": "none yet" if not view.history else "newest first",
    }
