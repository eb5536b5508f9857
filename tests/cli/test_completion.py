"""What a shell is given, and what it offers."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete

from tests.cli.support import Cli
from tests.cli.test_flows import STUDIO
from tests.cli.tree import CALLS, COMMANDS
from tidemill.cli.root import root


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script(cli: Cli, shell: str) -> None:
    ran = cli("completion", shell)
    assert ran.code == 0
    assert f"_TIDEMILL_COMPLETE={shell}_complete" in ran.out
    assert ran.out.startswith("# ")
    assert cli("completion", shell, "--json").json["script"] in ran.out


def test_an_unknown_shell(cli: Cli) -> None:
    ran = cli("completion", "powershell")
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)


def offered(line: str) -> list[str]:
    """What bash would be given for the last word of the line."""
    words = line.split(" ")
    environment = os.environ | {
        "_TIDEMILL_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    ran = subprocess.run(
        [sys.executable, "-m", "tidemill"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not ran.stderr
    return [answer.partition(",")[2] for answer in ran.stdout.splitlines() if answer]


def test_names_are_offered(cli: Cli) -> None:
    cli.send("a")
    assert offered("tidemill qu") == ["queues"]
    assert offered("tidemill jobs re") == ["reprioritise", "retry"]
    assert offered("tidemill jobs --state r") == ["ready", "running"]
    assert offered("tidemill queues --app shop:app pause m") == ["mail"]
    assert offered("tidemill jobs --url sqlite:///shop.db --queue ") == ["mail"]
    assert offered("tidemill enqueue --app shop:app b") == ["bounce"]


def offered_here(line: str) -> list[str]:
    """The same without a process of its own."""
    *words, begun = line.split(" ")[1:]
    shell = BashComplete(root, {}, "tidemill", "_TIDEMILL_COMPLETE")
    return [item.value for item in shell.get_completions(words, begun)]


def test_jobs_and_arguments_are_offered_here(cli: Cli) -> None:
    job = cli.send("a")
    assert offered_here(f"tidemill jobs --app shop:app show {job[:9]}") == [job]
    assert offered_here(f"tidemill explain --url sqlite:///shop.db {job[:2]}") == [job]
    assert offered_here("tidemill jobs retry --url sqlite:///shop.db ") == [job]
    assert offered_here("tidemill enqueue --app shop:app send ") == ["to="]
    assert offered_here("tidemill enqueue --app shop:app send to=ann ") == []


def test_flows_and_tokens_are_offered_here(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "studio.py").write_text(STUDIO)
    importlib.import_module("studio").send("7")
    assert cli("token", "create", "ann", "--app", "studio:app").code == 0
    assert offered_here("tidemill flows --app studio:app show c") == ["clip/7"]
    assert offered_here("tidemill jobs --app studio:app --flow ") == ["clip/7"]
    assert offered_here("tidemill flows --app studio:app --name ") == ["clip"]
    assert offered_here("tidemill token revoke --app studio:app a")[0] == "ann"


NEW, FREE = {"token create", "webhooks add"}, {"words", "settings", "limits", "priority", "address", "into"}
"""Commands whose name is for something that is not there yet, and what is anybody's to write."""


@pytest.mark.parametrize("path", CALLS)
def test_what_names_something_that_is_there_is_offered(path: str) -> None:
    for argument in COMMANDS[path].params:
        if isinstance(argument, click.Argument) and argument.name not in FREE and path not in NEW:
            is_known = isinstance(argument.type, click.Choice | click.Path)
            assert is_known or argument._custom_shell_complete, argument.name


def test_whatever_is_wrong_offers_nothing(cli: Cli) -> None:
    assert offered("tidemill queues --app nothing:app pause m") == []
    assert offered("tidemill queues pause m") == []
