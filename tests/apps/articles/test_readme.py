"""Runs the commands of the README in their order; each shows a result."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers.program import Program, wait_until
from tidemill_apps.articles import service

README = Path(service.__file__).with_name("README.md").read_text(encoding="utf-8")
UP = [sys.executable, "-m", "tidemill", "up", "articles", "--port", "0"]
TOKEN = [sys.executable, "-m", "tidemill", "token", "create", "me", "--role", "admin", "--app", "articles"]
WATCHED = 2


class Terminal:
    """A shell in which the first line of the block was typed."""

    def __init__(self, address: str, token: str) -> None:
        self._first = f"{first_line()} HERE={address}"
        self._environment = {"TOKEN": token, "PATH": "/usr/bin:/bin"}

    def type(self, line: str) -> str:
        """Types a line and returns its output. An endless stream is read for a while."""
        line = line.replace("curl ", f"curl -s --max-time {WATCHED if is_stream(line) else 60} ", 1)
        words = ["bash", "-c", f"{self._first}\n{line}"]
        ended = subprocess.run(words, env=self._environment, capture_output=True, check=False)
        return ended.stdout.decode()

    def data(self, line: str) -> Any:
        answer = json.loads(self.type(line))
        assert answer["status"] is True, f"{line}: {answer}"
        return answer.get("data")


def block() -> list[str]:
    [found] = re.findall(r"```sh\n(A=.*?)```", README, re.DOTALL)
    return [line for line in found.splitlines() if line]


def first_line() -> str:
    return block()[0]


def is_stream(line: str) -> bool:
    return "/api/embedding/progress" in line


@contextmanager
def up(folder: Path) -> Iterator[Terminal]:
    """Starts it like a new user: default settings, in an empty folder."""
    log = folder / "up.log"
    program = Program(UP, log=log)
    try:
        wait_until(lambda: "worker started" in log.read_text(), "a worker")
        found = re.search(r"(http://127\.0\.0\.1:\d+)/sign-in", log.read_text())
        assert found is not None
        token = subprocess.run(TOKEN, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()
        yield Terminal(found[1], token)
    finally:
        program.end()


def test_each_line_of_the_api_shows_something(tmp_path: Path) -> None:
    typed = block()[1:]
    with up(tmp_path) as terminal:
        for line in typed:
            if is_stream(line):
                assert "event: counts" in terminal.type(line)
                continue
            if "/search" in line:
                wait_until(lambda: is_embedded(terminal), "the article")
            data = terminal.data(line)
            if "/search" in line:
                assert [found["title"] for found in data] == ["潮汐磨坊"], line
            if "/batch" in line:
                assert data == {"queued": 1}, line
    assert {"/search", "/batch", "/progress", "/status"} <= set(re.findall(r"/\w+", " ".join(typed)))


def is_embedded(terminal: Terminal) -> bool:
    return bool(terminal.data('curl -H "$A" $HERE/api/post/1')["rag_status"] == "completed")
