"""The top of the command line: `tidemill COMMAND`. A command's module is imported when it is named."""

from __future__ import annotations

from importlib import import_module

import click

_COMMANDS = {
    "doctor": "Say whether the store, its queues and its workers are well.",
    "jobs": "Find jobs, newest first; or look at one, retry or cancel some.",
    "queues": "Show the queues; or pause and resume one.",
    "worker": "Run a worker for an application, such as myproject.jobs:app.",
}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        command = getattr(import_module(f"tidemill.cli.{cmd_name}"), cmd_name)
        return command if isinstance(command, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """From the table, so that `--help` does not import every command."""
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tidemill", message="tidemill %(version)s")
def root() -> None:
    """Background jobs against rate-limited, paid APIs."""
