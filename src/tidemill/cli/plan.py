"""`tidemill plan`: when a backlog that is not sent yet would be done."""

from __future__ import annotations

from typing import Any

import click

from tidemill.app import Tidemill
from tidemill.cli import complete, times
from tidemill.cli.application import load, required
from tidemill.cli.enqueue import task_of
from tidemill.cli.numbers import Whole
from tidemill.cli.output import echo, moment, print_fields, print_json
from tidemill.cli.payloads import from_words
from tidemill.cli.pools.words import NEVER, amount
from tidemill.cli.table import Column, print_table
from tidemill.cli.target import Target, with_application
from tidemill.inspect.plan import LimitPlan, Plan
from tidemill.inspect.words import duration, plural

LIMITS = (Column("limit"), Column("alone it takes", right=True))


@click.command()
@click.argument("task", shell_complete=complete.tasks)
@click.argument("words", metavar="[NAME=VALUE]...", nargs=-1, shell_complete=complete.arguments)
@click.option("--count", type=Whole(1), required=True, help="How many jobs.")
@click.option("--priority", type=int, help="Smaller runs first. Default: the task's, usually 5.")
@click.option(
    "--takes",
    callback=times.duration,
    metavar="DURATION",
    help="How long a call is under way. Default: as the last jobs of the task took.",
)
@with_application
def plan(target: Target, *, task: str, words: tuple[str, ...], count: int, **options: Any) -> None:
    """Say when so many jobs would be done if they were sent now. Nothing is sent.

    Where a cost or a key is computed from the arguments, give an example of them, as for enqueue.
    """

    async def ask(app: Tidemill) -> Plan:
        chosen = task_of(app, task)
        if options["priority"] is not None:
            chosen = chosen.using(priority=options["priority"])
        if not words:
            return await app.plan(chosen, count=count, takes=options["takes"])
        positional, named = from_words(chosen.definition, words)
        return await app.plan(chosen.job(*positional, **named), count=count, takes=options["takes"])

    found = target.run_or_empty(ask, load(required(target.app)))
    if target.json:
        print_json(found)
    else:
        _print(found)


def _print(plan: Plan) -> None:
    echo(str(plan))
    echo()
    units = ", ".join(f"{amount(many)} {unit}" for unit, many in plan.units.items())
    print_fields(
        {
            "starts": moment(plan.starts_at) or NEVER,
            "done": moment(plan.done_at) or NEVER,
            "ahead": plural(plan.ahead, "ready job") if plan.ahead else None,
            "calls": f"{plan.calls}, {units}" if units else plan.calls,
            "a call takes": "unknown, so workers' slots are not counted; say it with --takes"
            if plan.takes is None
            else duration(plan.takes),
        }
    )
    if plan.limits:
        echo()
        print_table(LIMITS, [(limit, _alone(limit)) for limit in sorted(plan.limits, key=_longest_first)])


def _alone(limit: LimitPlan) -> str:
    return "for ever" if limit.seconds is None else duration(limit.seconds)


def _longest_first(limit: LimitPlan) -> float:
    return float("-inf") if limit.seconds is None else -limit.seconds
