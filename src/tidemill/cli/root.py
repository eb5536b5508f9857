"""The `tidemill` command: the table of commands, and a group that imports a command when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click


class CommandGroup(click.Group):
    """A group that suggests similar names for an unknown command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            from tidemill.cli.output import suggest_names  # imported here to keep --help fast

            ctx.fail(f"no such command {args[0]!r}; {suggest_names(args[0], known, shown=len(known))}")
        return super().resolve_command(ctx, args)


_COMMAND_HELP = {
    "up": "Run everything an application needs, in one process.",
    "worker": "Run a worker for an application, such as myproject.jobs:app.",
    "web": "Serve only the dashboard and the HTTP API.",
    "link": "Print a link that signs in to the dashboard once, within 15 minutes.",
    "token": "Create, list or revoke tokens for the dashboard and the HTTP API.",
    "enqueue": "Enqueue a job, or a file of jobs.",
    "jobs": "Find jobs, newest first; or show one, or change some.",
    "queues": "Show the queues; or show, pause, set or empty one.",
    "pools": "Show the pools and their usage; or set, close or open one.",
    "schedules": "Show the schedules, newest first; or show, pause, run, set or remove one.",
    "flows": "Find flows, newest first; or show, cancel or retry one.",
    "webhooks": "Show the webhooks and their pending deliveries; or add, remove or test one.",
    "alerts": "Show the active alerts; or send a test message.",
    "plan": "Show when a number of jobs would be done if they were enqueued now.",
    "explain": "Explain why a job waits, or what became of it.",
    "top": "Watch queues and workers, refreshed every second.",
    "doctor": "Check the store, its queues and its workers.",
    "db": "Describe, check, back up, copy or compact the store.",
    "demo": "Run two applications inside the quotas of a simulated provider.",
    "bench": "Measure how many jobs per second this machine runs.",
    "completion": "Print the script that completes commands in a shell.",
}


# Modules of commands that share a module. Every other command has a module with its own name.
_COMMAND_MODULES = {
    "up": "worker",
    "link": "tokens",
    "token": "tokens",
    "webhooks": "notifications",
    "alerts": "notifications",
    "explain": "jobs",
}


class OutputPipeError(Exception):
    """Raised when the program that reads the output, such as `head`, has closed the pipe."""


class _LazyCommandGroup(CommandGroup):
    """The top-level group. It imports a command's module only when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMAND_HELP)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMAND_HELP:
            return None
        module = import_module(f"tidemill.cli.{_COMMAND_MODULES.get(cmd_name, cmd_name)}")
        command = getattr(module, cmd_name)
        return command if isinstance(command, click.Command) else None

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command. Raises OutputPipeError if a reader such as `head` closes the pipe."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise OutputPipeError from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Writes the list of commands for `--help`, without importing any command."""
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMAND_HELP.items()))


@click.group(
    cls=_LazyCommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(package_name="tidemill", message="tidemill %(version)s")
def root() -> None:
    """Background jobs against rate-limited, paid APIs."""
