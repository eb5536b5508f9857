"""`tidemill plan`: says when jobs that are not enqueued yet would be done."""

from __future__ import annotations

from typing import Any

import click

from tidemill.app import Tidemill
from tidemill.cli import completion
from tidemill.cli import options as cli_options
from tidemill.cli.application_loader import load_application, require_spec
from tidemill.cli.formatting import NEVER_TEXT, format_amount
from tidemill.cli.job_input import find_task, parse_words
from tidemill.cli.options import WholeNumber
from tidemill.cli.output import echo, format_time, print_fields, print_json
from tidemill.cli.store_options import CommandTarget, with_application
from tidemill.cli.terminal import Column, print_table
from tidemill.inspect.formatting import format_duration, pluralize
from tidemill.inspect.plan import LimitPlan, Plan

LIMIT_COLUMNS = (Column("limit"), Column("alone it takes", right=True))


@click.command()
@click.argument("task", shell_complete=completion.complete_tasks)
@click.argument("words", metavar="[NAME=VALUE]...", nargs=-1, shell_complete=completion.complete_arguments)
@click.option("--count", type=WholeNumber(1), required=True, help="Number of jobs.")
@click.option("--priority", type=int, help="Smaller runs first. Default: the task's, usually 5.")
@click.option(
    "--takes",
    callback=cli_options.parse_duration_option,
    metavar="DURATION",
    help="How long one call takes. Default: the mean of the task's recent jobs.",
)
@with_application
def plan(target: CommandTarget, *, task: str, words: tuple[str, ...], count: int, **options: Any) -> None:
    """Show when a number of jobs would be done if they were enqueued now. Nothing is enqueued.

    If a cost or a key is computed from the arguments, give example arguments, as for enqueue."""

    async def compute(app: Tidemill) -> Plan:
        chosen = find_task(app, task)
        if options["priority"] is not None:
            chosen = chosen.using(priority=options["priority"])
        if not words:
            return await app.plan(chosen, count=count, takes=options["takes"])
        positional, named = parse_words(chosen.definition, words)
        return await app.plan(chosen.job(*positional, **named), count=count, takes=options["takes"])

    found = target.run_or_empty(compute, load_application(require_spec(target.app)))
    if target.json:
        print_json(found)
    else:
        _print_plan(found)


def _print_plan(plan: Plan) -> None:
    echo(str(plan))
    echo()
    units = ", ".join(f"{format_amount(amount)} {unit}" for unit, amount in plan.units.items())
    print_fields(
        {
            "starts": format_time(plan.starts_at) or NEVER_TEXT,
            "done": format_time(plan.done_at) or NEVER_TEXT,
            "ahead": pluralize(plan.ahead, "ready job") if plan.ahead else None,
            "calls": f"{plan.calls}, {units}" if units else plan.calls,
            "a call takes": "unknown, so workers' slots are not counted; say it with --takes"
            if plan.takes is None
            else format_duration(plan.takes),
        }
    )
    if plan.limits:
        echo()
        print_table(
            LIMIT_COLUMNS,
            [(limit, _format_limit_time(limit)) for limit in sorted(plan.limits, key=_longest_first)],
        )


def _format_limit_time(limit: LimitPlan) -> str:
    return "for ever" if limit.seconds is None else format_duration(limit.seconds)


def _longest_first(limit: LimitPlan) -> float:
    return float("-inf") if limit.seconds is None else -limit.seconds
