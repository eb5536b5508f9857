"""Every command and every option is documented, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

from tests.cli.command_tree import APPLICATION_ONLY
from tests.docs.pages import page, section
from tidemill.cli.root import root

PAGE = page("reference/cli.md")
APART = {"up", "web", "worker", "demo", "bench", "completion"}
"""Commands without an existing store: they run an application, or create a store."""
COMMON = set(re.findall(r"^\| `(--[\w-]+)", section(PAGE, "Common options"), re.MULTILINE))

FILTER = set(re.findall(r"^\| `(--[\w-]+)", section(PAGE, "Which jobs"), re.MULTILINE))
"""A command that has one of these options has all of them; a test below checks that."""


def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


COMMANDS = dict(commands(root, "tidemill"))


def options(path: str) -> set[str]:
    return {option.opts[0] for option in COMMANDS[path].params if isinstance(option, click.Option)}


def test_every_command_is_documented() -> None:
    documented = re.findall(r"^## `(tidemill .+)`$", PAGE, re.MULTILINE)
    assert sorted(documented) == sorted(COMMANDS)


@pytest.mark.parametrize("path", COMMANDS)
def test_every_option_is_documented(path: str) -> None:
    about = section(PAGE, f"`{path}`")
    elsewhere = FILTER if options(path) >= FILTER else set()
    if path.split()[1] not in APART:
        elsewhere = elsewhere | COMMON
    assert set(re.findall(r"^\| `(--[\w-]+)", about, re.MULTILINE)) == options(path) - elsewhere


def test_common_options_are_common() -> None:
    for path in COMMANDS:
        if path.split()[1] not in APART:
            assert options(path) >= COMMON - ({"--url"} if path.split()[1] in APPLICATION_ONLY else set())
