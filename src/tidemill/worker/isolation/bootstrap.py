"""Setup of a child process. It ends when its parent ends, and imports the main module of the program."""

from __future__ import annotations

import ast
import ctypes
import functools
import multiprocessing.spawn
import os
import signal
import sys
from pathlib import Path

import msgspec

from tidemill.errors import ConfigurationError

_PR_SET_PDEATHSIG = 1


class _ChildFlag:
    is_child = False


def die_with_parent(how: signal.Signals, parent: int) -> None:
    """Asks the Linux kernel to send the signal `how` to this process when the thread that started it ends. On
    other systems it does nothing.

    `parent`: the process id of the expected parent. If it has ended, the signal is sent at once."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(how), 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), how)


def mark_as_child() -> None:
    """Records that this process is a child that runs jobs for a worker. `is_child` then returns True."""
    _ChildFlag.is_child = True


def is_child() -> bool:
    """True if this process is a child that runs jobs for a worker."""
    return _ChildFlag.is_child


class MainModule(msgspec.Struct, frozen=True):
    """The main module of the worker's program. `name` is set if the program was started with `-m`, `path` if
    it is a script."""

    name: str | None = None
    path: str | None = None


class MainImportError(Exception):
    """Raised if the main module cannot be imported in a child process. The message says why."""


class _MainImport:
    under_way = False


def describe_main_module() -> MainModule | None:
    """Returns the main module of this program, so that a child process can import it. Returns None if there
    is nothing to import, as in an interactive session."""
    main = sys.modules["__main__"]
    name: str | None = getattr(getattr(main, "__spec__", None), "name", None)
    if name is not None:
        return None if name == "__main__" or name.endswith(".__main__") else MainModule(name=name)
    path: str | None = getattr(main, "__file__", None)
    return None if path is None else MainModule(path=str(Path(path).absolute()))


def find_importable_main() -> MainModule | None:
    """Returns the main module if a child process can import it without starting another worker; None
    otherwise."""
    return None if problem_with_main() else describe_main_module()


def problem_with_main() -> str | None:
    """Returns a text that says why a child process cannot import the main module. Returns None if there is no
    problem."""
    if describe_main_module() is None:
        return "the main module was not started from a file or with -m"
    path = getattr(sys.modules["__main__"], "__file__", None)
    if path is None or not _has_main_guard(path):
        return (
            f"{path} starts its worker whenever it is imported; put what starts it under "
            '`if __name__ == "__main__":`'
        )
    return None


@functools.cache
def _has_main_guard(path: str) -> bool:
    """True if the file has an `if` that tests `__name__`. False if it has none or cannot be read."""
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    tests = (node.test for node in ast.walk(tree) if isinstance(node, ast.If))
    return any(
        isinstance(name, ast.Name) and name.id == "__name__" for test in tests for name in ast.walk(test)
    )


def import_main(main: MainModule) -> None:
    """Imports the main module in a child process, in the same way as `multiprocessing`. Raises
    `MainImportError` if the import fails."""
    key = "init_main_from_path" if main.name is None else "init_main_from_name"
    _MainImport.under_way = True
    try:
        multiprocessing.spawn.prepare({key: main.path if main.name is None else main.name})
    except BaseException as error:
        shown = main.path or main.name
        raise MainImportError(f"importing {shown} raised {type(error).__name__}: {error}") from error
    finally:
        _MainImport.under_way = False


def refuse_worker_in_child() -> None:
    """Raises ConfigurationError if this process is a child that is importing the main module. A script
    without a main guard would start another worker."""
    if _MainImport.under_way:
        raise ConfigurationError(
            "this process runs single jobs for a worker and imports its main module, which starts another "
            'worker; put what starts it under `if __name__ == "__main__":`'
        )
