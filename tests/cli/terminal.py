"""Runs a program in a real pseudo-terminal, reads its output and types keys."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import subprocess
import sys
import termios
from types import TracebackType
from typing import Self

PATIENCE = 30.0


class Terminal:
    """`python -m tidemill` with a pseudo-terminal as stdin, stdout and stderr."""

    def __init__(self, *arguments: str, columns: int = 140) -> None:
        self._ours, theirs = pty.openpty()
        self.drawn = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tidemill", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env=os.environ | {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "40"},
            preexec_fn=_take_terminal,  # noqa: PLW1509 - one ioctl, and no thread holds a lock here
        )
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def until(self, wanted: str) -> str:
        """Returns the output from now until the pattern matches, without escape codes."""
        begun = len(self.drawn)
        while not re.search(wanted, plain := _plain(self.drawn[begun:])):
            more = self._read()
            assert more, f"it ended without {wanted!r}: {plain}"
            self.drawn += more
        return plain

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def interrupt(self) -> None:
        """Presses Ctrl-C, twice: CPython loses one that comes while `input()` starts. A program that
        ignores both fails the test."""
        for patience in (2.0, PATIENCE):
            self.type("\x03")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(patience)
                return
        raise AssertionError(f"it goes on after Ctrl-C: {self.drawn[-500:]}")

    def code(self) -> int:
        """Waits for the end of the program and of its output, and returns the exit code."""
        while more := self._read():
            self.drawn += more
        return self.process.wait(PATIENCE)

    def _read(self) -> str:
        assert select.select([self._ours], [], [], PATIENCE)[0], (
            f"nothing more was drawn: {self.drawn[-500:]}"
        )
        try:
            return os.read(self._ours, 65_536).decode(errors="replace")
        except OSError:  # the other side is closed
            return ""


def _take_terminal() -> None:
    """Makes this the controlling terminal, so that Ctrl-C becomes a signal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _plain(drawn: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn)
