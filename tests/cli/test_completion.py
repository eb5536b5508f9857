"""The completion script, and the values that it offers."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete

from tests.cli.command_tree import CALLS, COMMANDS
from tests.cli.support import Cli
from tests.cli.test_flows import STUDIO
from tidemill.cli.root import root


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_printed(cli: Cli, shell: str) -> None:
    result = cli("completion", shell)
    assert result.code == 0
    assert f"_TIDEMILL_COMPLETE={shell}_complete" in result.out
    assert result.out.startswith("# ")
    assert cli("completion", shell, "--json").json["script"] in result.out


def test_an_unknown_shell_is_refused(cli: Cli) -> None:
    result = cli("completion", "powershell")
    assert (result.code, result.out, len(result.err.splitlines())) == (2, "", 1)


def complete(line: str) -> list[str]:
    """Returns what bash would receive for the last word of the line."""
    words = line.split(" ")
    environment = os.environ | {
        "_TIDEMILL_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    result = subprocess.run(
        [sys.executable, "-m", "tidemill"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not result.stderr
    return [answer.partition(",")[2] for answer in result.stdout.splitlines() if answer]


def test_names_are_offered(cli: Cli) -> None:
    cli.send("a")
    assert complete("tidemill qu") == ["queues"]
    assert complete("tidemill jobs re") == ["reprioritise", "retry"]
    assert complete("tidemill jobs --state r") == ["ready", "running"]
    assert complete("tidemill queues --app shop:app pause m") == ["mail"]
    assert complete("tidemill jobs --url sqlite:///shop.db --queue ") == ["mail"]
    assert complete("tidemill enqueue --app shop:app b") == ["bounce"]


def complete_in_process(line: str) -> list[str]:
    """Returns the same without a subprocess."""
    *words, begun = line.split(" ")[1:]
    shell = BashComplete(root, {}, "tidemill", "_TIDEMILL_COMPLETE")
    return [item.value for item in shell.get_completions(words, begun)]


def test_jobs_and_arguments_are_offered(cli: Cli) -> None:
    job = cli.send("a")
    assert complete_in_process(f"tidemill jobs --app shop:app show {job[:9]}") == [job]
    assert complete_in_process(f"tidemill explain --url sqlite:///shop.db {job[:2]}") == [job]
    assert complete_in_process("tidemill jobs retry --url sqlite:///shop.db ") == [job]
    assert complete_in_process("tidemill enqueue --app shop:app send ") == ["to="]
    assert complete_in_process("tidemill enqueue --app shop:app send to=ann ") == []


def test_flows_and_tokens_are_offered(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "studio.py").write_text(STUDIO)
    importlib.import_module("studio").send("7")
    assert cli("token", "create", "ann", "--app", "studio:app").code == 0
    assert complete_in_process("tidemill flows --app studio:app show c") == ["clip/7"]
    assert complete_in_process("tidemill jobs --app studio:app --flow ") == ["clip/7"]
    assert complete_in_process("tidemill flows --app studio:app --name ") == ["clip"]
    assert complete_in_process("tidemill token revoke --app studio:app a")[0] == "ann"


NEW, FREE = {"token create", "webhooks add"}, {"words", "settings", "limits", "priority", "address", "into"}
"""Commands with a name for something new, and arguments with free text."""


@pytest.mark.parametrize("path", CALLS)
def test_every_argument_that_names_an_existing_object_is_completed(path: str) -> None:
    for argument in COMMANDS[path].params:
        if isinstance(argument, click.Argument) and argument.name not in FREE and path not in NEW:
            is_known = isinstance(argument.type, click.Choice | click.Path)
            assert is_known or argument._custom_shell_complete, argument.name


def test_an_error_gives_no_completions(cli: Cli) -> None:
    assert complete("tidemill queues --app nothing:app pause m") == []
    assert complete("tidemill queues pause m") == []
