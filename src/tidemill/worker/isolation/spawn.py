"""Starts and kills child processes, and describes how a child process died."""

from __future__ import annotations

import contextlib
import multiprocessing.spawn
import os
import signal
import subprocess
import sys
from multiprocessing.connection import Connection

import msgspec

from tidemill.logs import current_settings
from tidemill.worker.isolation.bootstrap import find_importable_main
from tidemill.worker.isolation.messages import ChildStart

_CHILD_COMMAND = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2])['path']; "
    "from tidemill.worker.isolation.child import main; main()"
)


class ChildDeath(Exception):
    """Raised if a child process died before it had replied. The message says how."""


class SpawnError(ChildDeath):
    """Raised if the system could not start a process. The job's code cannot be the cause."""


def spawn_child(pipe: Connection, application: str | None, *, uvloop: bool) -> subprocess.Popen[bytes]:
    """Starts a child process with one end of a pipe, and returns it. `application` is the import path of the
    application.

    `multiprocessing` is not used, because its child processes always import the main module."""
    command = multiprocessing.spawn.get_command_line()
    interpreter = command[: command.index("-c")]  # and its flags
    begin = ChildStart(
        path=[str(entry) for entry in sys.path],
        argv=sys.argv,
        parent=os.getpid(),
        uvloop=uvloop,
        main=find_importable_main(),
        application=application,
        logs=current_settings(),
    )
    try:
        return subprocess.Popen(  # noqa: S603 - this interpreter
            [*interpreter, "-c", _CHILD_COMMAND, str(pipe.fileno()), msgspec.json.encode(begin).decode()],
            pass_fds=[pipe.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # so the worker can kill everything that a handler started
        )
    finally:
        pipe.close()


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """Sends SIGKILL to the child process and to everything that it started in its session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def describe_death(process: subprocess.Popen[bytes] | None, error: Exception) -> ChildDeath:
    """Returns the exception that says why a child process no longer answers. `process` is None if it could
    not be started."""
    if process is None:
        return SpawnError(f"the process could not be started: {error}")
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=1)
    code = process.returncode
    if code is None:
        return ChildDeath(f"the process could not be understood: {error}")
    if code < 0:
        return ChildDeath(f"the process was ended by {signal.Signals(-code).name}")
    return ChildDeath(f"the process ended with exit code {code}")
