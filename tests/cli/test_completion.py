"""What a shell is given, and what it offers."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.cli.support import Cli


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


def test_whatever_is_wrong_offers_nothing(cli: Cli) -> None:
    assert offered("tidemill queues --app nothing:app pause m") == []
    assert offered("tidemill queues pause m") == []
