"""A link leads to where its own store is served."""

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
def serving(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and the address of which it printed a link."""
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
    ran = cli("link", *(words or AT))
    found = re.fullmatch(r"(.+)/sign-in/tml_\w+\n", ran.out)
    assert found is not None, ran.err
    return found[1]


@pytest.mark.parametrize("command", ["up", "web"])
def test_it_leads_to_the_port_that_was_free(cli: Cli, tmp_path: Path, command: str) -> None:
    application_at(tmp_path, "other", "sqlite:///other.db")
    with serving("web", "other:app") as (_, others), serving(command, "shop:app") as (_, ours):
        assert ours != others
        assert (address(cli), address(cli, "--app", "other:app")) == (ours, others)
        assert address(cli, "--url", "sqlite:///shop.db") == ours
        assert "nobody" not in cli("link", *AT).err
        assert cli("link", *AT, "--json").json["served"] is True


def test_it_leads_to_the_newest(cli: Cli) -> None:
    with serving("web", "shop:app") as (_, first):
        with serving("web", "shop:app") as (_, second):
            assert (first != second, address(cli)) == (True, second)
        assert address(cli) == first


def test_what_is_said_wins(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving("web", "shop:app", "--port", "0"):
        monkeypatch.setenv("TIDEMILL_WEB_PUBLIC_URL", "https://mill.example")
        assert address(cli) == "https://mill.example"
        assert address(cli, *AT, "--at", "https://other.example") == "https://other.example"


@pytest.mark.parametrize(
    ("words", "remedy"),
    [(AT, "tidemill web shop:app"), (("--url", "sqlite:///shop.db"), "tidemill web module:app")],
)
def test_that_nobody_serves_is_said(cli: Cli, words: tuple[str, ...], remedy: str) -> None:
    with serving("web", "shop:app", "--port", "0"):
        pass
    ran = cli("link", *words)
    assert ran.out.startswith("http://127.0.0.1:8750/sign-in/")
    assert f"nobody serves it now: {remedy}" in ran.err
    assert cli("link", *words, "--json").json["served"] is False


def test_one_that_was_killed_is_not_led_to(cli: Cli) -> None:
    with serving("web", "shop:app", "--port", "0") as (process, _):
        process.kill()
        process.wait(timeout=60)
    assert "nobody serves it now: tidemill web shop:app" in cli("link", *AT).err


def test_where_another_host_serves_it_is_said(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving("web", "shop:app", "--port", "0") as (_, ours):
        monkeypatch.setattr("tidemill.cli.where.gethostname", lambda: "elsewhere")
        ran = cli("link", *AT)
    assert ran.out.startswith(ours)
    assert f"served on {socket.gethostname()}" in ran.err
    assert "--at" in ran.err
