"""The top of the command line: `tidemill COMMAND`. A command's module is imported when it is named."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from tidemill.cli.groups import Group

_COMMANDS = {
    "up": "Run everything an application needs, in one process.",
    "worker": "Run a worker for an application, such as myproject.jobs:app.",
    "web": "Serve the dashboard and the HTTP API by themselves.",
    "link": "Print a link that signs in to the dashboard once, within a quarter of an hour.",
    "token": "Make tokens for the dashboard and the HTTP API; list or revoke them.",
    "enqueue": "Send a job, or many from a file.",
    "jobs": "Find jobs, newest first; or look at one, or change some.",
    "queues": "Show the queues; or look at one, pause, set or empty it.",
    "pools": "Show the pools and how full they are; or set, close or open one.",
    "schedules": "Show the schedules, newest first; or look at one, pause, run, set or remove it.",
    "flows": "Find flows, newest first; or look at one, cancel or retry it.",
    "webhooks": "Show the webhooks and what waits to be delivered; or add, remove or test one.",
    "alerts": "Show what is wrong by the rules of alerts; or send a test message.",
    "plan": "Say when so many jobs would be done if they were sent now.",
    "explain": "Say why a job waits, or what became of it.",
    "top": "Watch queues and workers, refreshed each second.",
    "doctor": "Say whether the store, its queues and its workers are well.",
    "db": "Look after the store itself: facts, check, backup, copy, compact.",
    "demo": "Watch some jobs run, with all that can go wrong.",
    "bench": "Measure how many jobs a second this machine does.",
    "completion": "Print the script that completes commands in a shell.",
}


class ReaderGone(Exception):
    """Nobody reads our output any more."""


class _Lazy(Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        command = getattr(import_module(f"tidemill.cli.{cmd_name}"), cmd_name)
        return command if isinstance(command, click.Command) else None

    def invoke(self, ctx: click.Context) -> Any:
        """click itself would end with 1 when a reader such as `head` has seen enough."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise ReaderGone from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """From the table, so that `--help` does not import every command."""
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="tidemill", message="tidemill %(version)s")
def root() -> None:
    """Background jobs against rate-limited, paid APIs."""
