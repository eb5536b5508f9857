"""Single keys, without Enter."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pressed(key: str) -> Iterator[asyncio.Event]:
    """The event is set when the key was pressed or the terminal went away. Ctrl-C stays what it is; the
    terminal is afterwards as it was before."""
    loop, event, terminal = asyncio.get_running_loop(), asyncio.Event(), sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def read() -> None:
        typed = os.read(terminal, 64)
        if not typed or key.encode() in typed.lower():
            event.set()

    tty.setcbreak(terminal)
    loop.add_reader(terminal, read)
    try:
        yield event
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
