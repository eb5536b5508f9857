"""`tidemill queues pause`: start nothing new of a queue."""

from __future__ import annotations

import click

from tidemill.app import Tidemill
from tidemill.cli import complete
from tidemill.cli.output import echo, moment, print_json
from tidemill.cli.queues.ending import Ending, with_ending
from tidemill.cli.target import Target, with_target


@click.command()
@click.argument("name", shell_complete=complete.queues)
@with_ending
@click.option("--reason", help="Shown to whoever wonders.")
@with_target
def pause(target: Target, name: str, *, ending: Ending, reason: str | None) -> None:
    """Start nothing new of a queue; running jobs go on."""

    async def close(app: Tidemill) -> float | None:
        end = await ending.at(app)
        await app.inspect.pause(name, until=end, reason=reason)
        return end

    end = target.run(close)
    if target.json:
        print_json({"queue": name, "paused": True, "until": end, "reason": reason})
    else:
        echo(f"{name} is paused" + (f" until {moment(end)}" if end else " until it is resumed"))
