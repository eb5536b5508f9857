"""CPU time of other processes, as exact as the system knows it (Linux)."""

from __future__ import annotations

import os
import time
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(*pids: int) -> float:
    """Of each process with its living children, and of the children it has already buried."""
    return sum(_with_children(pid) for pid in pids)


def _with_children(pid: int) -> float:
    try:
        # The system's name for "the CPU clock of that process": nanoseconds, where /proc counts hundredths.
        own = time.clock_gettime((~pid << 3) | 2)
        buried = sum(int(word) for word in _stat(pid)[13:15]) / TICK
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, ProcessLookupError):
        return 0.0
    return own + buried + sum(_with_children(int(child)) for child in children)


def _stat(pid: int) -> list[str]:
    """The fields after the name, which may hold blanks and brackets."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
