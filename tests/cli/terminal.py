"""A program in a real terminal: what it draws, and keys typed into it."""

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
        """What is drawn from now on, up to where the pattern is found; escape codes left out."""
        begun = len(self.drawn)
        while not re.search(wanted, plain := _plain(self.drawn[begun:])):
            more = self._read()
            assert more, f"it ended without {wanted!r}: {plain}"
            self.drawn += more
        return plain

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def interrupt(self) -> None:
        """Ctrl-C, and once more: CPython loses one that comes while `input()` is being set up. A program
        that heeds neither fails the test."""
        for patience in (2.0, PATIENCE):
            self.type("\x03")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(patience)
                return
        raise AssertionError(f"it goes on after Ctrl-C: {self.drawn[-500:]}")

    def code(self) -> int:
        """Its exit code, when it has ended and all it drew was read."""
        while more := self._read():
            self.drawn += more
        return self.process.wait(PATIENCE)

    def _read(self) -> str:
        assert select.select([self._ours], [], [], PATIENCE)[0], (
            f"nothing more was drawn: {self.drawn[-500:]}"
        )
        try:
            return os.read(self._ours, 65_536).decode(errors="replace")
        except OSError:  # nobody has the other side open any more
            return ""


def _take_terminal() -> None:
    """So that Ctrl-C typed into it becomes a signal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _plain(drawn: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn)
