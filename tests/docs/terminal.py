"""Runs a command on a pseudo-terminal, like a reader of the page."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

WIDTH, HEIGHT = 110, 50
TIMEOUT_SECONDS = 60.0
ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|[@-Z\\-_])")


def run(command: str, folder: Path) -> tuple[int, str]:
    """Returns the exit code, and the output on stdout and stderr without colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    with subprocess.Popen(
        ["timeout", str(TIMEOUT_SECONDS), "bash", "-c", command],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        printed = _read_all(ours)
    os.close(ours)
    return process.returncode, "".join(map(_visible_text, printed.replace("\r\n", "\n").split("\n")[:-1]))


def _visible_text(line: str) -> str:
    """Returns the last state of a line: a carriage return overwrites it, as a progress bar does."""
    return ESCAPES.sub("", line.rstrip("\r\n").rpartition("\r")[2]) + "\n"


def environment() -> dict[str, str]:
    """Returns an environment without our settings; `python` and `tidemill` are from this installation."""
    plain = {
        name: value for name, value in os.environ.items() if not name.startswith(("TIDEMILL_", "PYTEST_"))
    }
    found_first = f"{Path(sys.executable).parent}{os.pathsep}{plain.get('PATH', '')}"
    return plain | {
        "PATH": found_first,
        "TERM": "xterm",
        "COLUMNS": str(WIDTH),
        "NO_COLOR": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _read_all(terminal: int) -> str:
    parts: list[bytes] = []
    while True:
        try:
            part = os.read(terminal, 65_536)
        except OSError:  # the last writer has closed it
            part = b""
        if not part:
            return b"".join(parts).decode(errors="replace")
        parts.append(part)
