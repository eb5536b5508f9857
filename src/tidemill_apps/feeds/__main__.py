"""The command line `python -m tidemill_apps.feeds`: compares another scheduler's log with this one."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec

from tidemill_apps.feeds.settings import MAX_INTERVAL_MINUTES
from tidemill_apps.feeds.shadow import ShadowReport, compare, read_log

COMMAND_NAME = "python -m tidemill_apps.feeds"
EXIT_USAGE = 2


@click.group()
def main() -> None:
    """Commands of the feeds application."""


@main.command()
@click.argument("log", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--interval", type=click.IntRange(1, MAX_INTERVAL_MINUTES), default=60, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def shadow(log: Path, interval: int, *, as_json: bool) -> None:
    """Compare LOG, the JSON lines of another scheduler, with this application's decisions.

    A line is {"feedId", "dueAt", "startedAt", "status"}. --interval is the refresh interval in minutes.
    Nothing is fetched."""
    try:
        with log.open(encoding="utf-8") as lines:
            report = compare(read_log(lines), interval)
    except (ValueError, OSError) as error:
        click.echo(f"{COMMAND_NAME}: {log}: {error}", err=True)
        sys.exit(EXIT_USAGE)
    click.echo(msgspec.json.encode(report).decode() if as_json else _describe(report))


def _describe(report: ShadowReport) -> str:
    return "\n".join(
        (
            f"{report.runs} runs of {report.feeds} feeds",
            f"missed {report.missed}, early {report.early}, failed {report.failed} ({report.error_rate:.1%})",
            f"start after due time: median {report.median_lag:g} s, longest {report.longest_lag:g} s",
            (
                f"start against this application: median {report.median_difference:+g} s, "
                f"longest {report.longest_difference:+g} s"
            ),
        )
    )


if __name__ == "__main__":
    main(prog_name=COMMAND_NAME)
