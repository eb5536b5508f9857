"""CPU time of other processes, in the best resolution of the system (Linux)."""

from __future__ import annotations

import os
import time
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(*pids: int) -> float:
    """Returns the CPU time of the processes, their living children and their reaped children."""
    return sum(_with_children(pid) for pid in pids)


def _with_children(pid: int) -> float:
    try:
        # The clock id of a process's CPU time. It has nanoseconds; /proc has hundredths of a second.
        own = time.clock_gettime((~pid << 3) | 2)
        buried = sum(int(word) for word in _stat(pid)[13:15]) / TICK
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, ProcessLookupError):
        return 0.0
    return own + buried + sum(_with_children(int(child)) for child in children)


def _stat(pid: int) -> list[str]:
    """Returns the fields after the process name, which may contain spaces and brackets."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
