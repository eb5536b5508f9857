"""The options of whatever runs jobs, and what they become."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, Literal

import click

from tidemill.app import Tidemill
from tidemill.cli.numbers import Whole
from tidemill.cli.times import duration


def weights(_ctx: click.Context, _option: click.Parameter, value: str | None) -> dict[str, int | None] | None:
    """`feeds=5,mail` → weights by name, in the order given."""
    if value is None:
        return None
    found: dict[str, int | None] = {}
    for part in filter(None, (piece.strip() for piece in value.split(","))):
        name, given, weight = part.partition("=")
        if not name or (given and not weight.isdecimal()) or weight == "0":
            raise click.BadParameter(f"{part!r} is not NAME or NAME=WEIGHT with a whole weight of 1 or more")
        found[name] = int(weight) if given else None
    if not found:
        raise click.BadParameter("names no queue; write a,b or a=10,b")
    return found


_RUNNING = (
    click.option(
        "--queues",
        callback=weights,
        metavar="NAME[=WEIGHT],…",
        help="Which, and with what weight: a=10,b. Default: all of the app.",
    ),
    click.option("--concurrency", type=Whole(1), help="Jobs at once in each process. Default: 10."),
    click.option(
        "--strict", is_flag=True, default=None, help="Serve queues in the order given, not by weight."
    ),
    click.option(
        "--grace",
        callback=duration,
        metavar="DURATION",
        help="How long running jobs may finish after SIGTERM. Default: 30s.",
    ),
    click.option("--threads", type=Whole(1), help="Sync handlers at once. Default: --concurrency."),
    click.option(
        "--until-idle",
        is_flag=True,
        default=None,
        help="Stop when nothing is ready or running here; retries and delayed jobs that are not due stay.",
    ),
)


def runs_jobs(log_format: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds the options that `worker` and `up` share. They log differently when nothing is said."""
    return lambda command: functools.reduce(
        lambda made, option: option(made), reversed(_RUNNING), logs(log_format)(command)
    )


def logs(log_format: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds the options of what writes a log until it is told to stop."""
    options = (
        click.option(
            "--json",
            "as_json",
            is_flag=True,
            help="Print JSON: a line when something has started or stopped. The log is JSON, too.",
        ),
        click.option(
            "--log-format",
            type=click.Choice(["auto", "json", "console"]),
            help=f"auto is json unless stderr is a terminal. Default: {log_format}; json with --json.",
        ),
        click.option(
            "--log-level",
            type=click.Choice(["debug", "info", "warning", "error"]),
            help="The least urgent lines that are written. Default: info.",
        ),
    )
    return lambda command: functools.reduce(lambda made, option: option(made), reversed(options), command)


Format = Literal["json", "console"]


def log_to_stderr(app: Tidemill, format: str | None, level: str | None) -> tuple[Format, str]:  # noqa: A002 - the word for it
    """Options, then settings. Answers what was chosen, with `auto` decided."""
    from tidemill.logs import configure

    wanted = format or app.settings.value("log.format")
    decided: Format = (
        "console" if wanted == "console" or (wanted == "auto" and sys.stderr.isatty()) else "json"
    )
    least = level or app.settings.value("log.level")
    configure(format=decided, level=least)
    return decided, least
