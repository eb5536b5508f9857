"""A sign-in link points to the dashboard that serves its store."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.support import Cli, application_at

AT = ("--app", "shop:app")


@contextmanager
def dashboard_process(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Starts a dashboard; yields the process and the address in its link."""
    command = [sys.executable, "-m", "tidemill", *words, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            link = json.loads(process.stdout.readline())["link"]
            yield process, link.partition("/sign-in/")[0]
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)


def address(cli: Cli, *words: str) -> str:
    result = cli("link", *(words or AT))
    found = re.fullmatch(r"(.+)/sign-in/tml_\w+\n", result.out)
    assert found is not None, result.err
    return found[1]


@pytest.mark.parametrize("command", ["up", "web"])
def test_the_link_has_the_port_that_was_chosen(cli: Cli, tmp_path: Path, command: str) -> None:
    application_at(tmp_path, "other", "sqlite:///other.db")
    with (
        dashboard_process("web", "other:app") as (_, others),
        dashboard_process(command, "shop:app") as (_, ours),
    ):
        assert ours != others
        assert (address(cli), address(cli, "--app", "other:app")) == (ours, others)
        assert address(cli, "--url", "sqlite:///shop.db") == ours
        assert "nobody" not in cli("link", *AT).err
        assert cli("link", *AT, "--json").json["served"] is True


def test_the_link_points_to_the_newest_dashboard(cli: Cli) -> None:
    with dashboard_process("web", "shop:app") as (_, first):
        with dashboard_process("web", "shop:app") as (_, second):
            assert (first != second, address(cli)) == (True, second)
        assert address(cli) == first


def test_a_given_address_wins(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with dashboard_process("web", "shop:app", "--port", "0"):
        monkeypatch.setenv("TIDEMILL_WEB_PUBLIC_URL", "https://mill.example")
        assert address(cli) == "https://mill.example"
        assert address(cli, *AT, "--at", "https://other.example") == "https://other.example"


@pytest.mark.parametrize(
    ("words", "remedy"),
    [(AT, "tidemill web shop:app"), (("--url", "sqlite:///shop.db"), "tidemill web module:app")],
)
def test_a_missing_dashboard_is_reported(cli: Cli, words: tuple[str, ...], remedy: str) -> None:
    with dashboard_process("web", "shop:app", "--port", "0"):
        pass
    result = cli("link", *words)
    assert result.out.startswith("http://127.0.0.1:8750/sign-in/")
    assert f"it is not served now: start {remedy}" in result.err
    assert cli("link", *words, "--json").json["served"] is False


def test_a_killed_dashboard_is_not_used(cli: Cli) -> None:
    with dashboard_process("web", "shop:app", "--port", "0") as (process, _):
        process.kill()
        process.wait(timeout=60)
    assert "it is not served now: start tidemill web shop:app" in cli("link", *AT).err


def test_a_dashboard_on_another_host_is_reported(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with dashboard_process("web", "shop:app", "--port", "0") as (_, ours):
        monkeypatch.setattr("tidemill.cli.web.gethostname", lambda: "elsewhere")
        result = cli("link", *AT)
    assert result.out.startswith(ours)
    assert f"served on {socket.gethostname()}" in result.err
    assert "--at" in result.err
