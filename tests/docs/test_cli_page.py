"""Every command and every option of the command line is documented, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest
from pages import page, section

from tidemill.cli.root import root


def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    for name in group.commands:
        command = group.commands[name]
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


COMMANDS = dict(commands(root, "tidemill"))


def test_every_command_is_documented() -> None:
    documented = re.findall(r"^## `(tidemill .+)`$", page("reference/cli.md"), re.MULTILINE)
    assert sorted(documented) == sorted(COMMANDS)


@pytest.mark.parametrize("path", COMMANDS)
def test_every_option_is_documented(path: str) -> None:
    about = section(page("reference/cli.md"), f"`{path}`")
    documented = set(re.findall(r"^\| `(--[\w-]+)", about, re.MULTILINE))
    taken = {option.opts[0] for option in COMMANDS[path].params if isinstance(option, click.Option)}
    everywhere = set(re.findall(r"`(--[\w-]+)", page("reference/cli.md").split("## `")[0]))
    assert documented == taken - everywhere
