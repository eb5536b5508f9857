"""A process that must not outlive the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


class _Process:
    is_child = False


def die_with_parent(how: signal.Signals, parent: int) -> None:
    """Ask the kernel for `how` when the thread that started this process ends. Only Linux can.

    `parent` is the process that should be alive: it may have died before the kernel was asked."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(how), 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), how)


def mark_as_child() -> None:
    """This process runs single jobs for a worker."""
    _Process.is_child = True


def is_child() -> bool:
    """True in a process that runs single jobs for a worker."""
    return _Process.is_child
