"""The program's main module, in a child process of a worker.

A handler may stand in the script that starts the worker, so the child imports that script, under the name
`__mp_main__`. A script that starts its worker without `if __name__ == "__main__":` would start another one
there. Such a script is never imported.
"""

from __future__ import annotations

import ast
import functools
import multiprocessing.spawn
import sys
from pathlib import Path

import msgspec

from tidemill.errors import ConfigurationError


class MainModule(msgspec.Struct, frozen=True):
    """`name` of a module that was started with -m, `path` of a script."""

    name: str | None = None
    path: str | None = None


class MainNotImported(Exception):
    """The message says why the main module cannot be imported in a child."""


class _Import:
    under_way = False


def main_module() -> MainModule | None:
    """Describes the main module for a child. None when a child needs no import of it: an interactive
    session, a program given with -c, a package's `__main__`."""
    main = sys.modules["__main__"]
    name: str | None = getattr(getattr(main, "__spec__", None), "name", None)
    if name is not None:
        return None if name == "__main__" or name.endswith(".__main__") else MainModule(name=name)
    path: str | None = getattr(main, "__file__", None)
    return None if path is None else MainModule(path=str(Path(path).absolute()))


def importable_main() -> MainModule | None:
    """The main module when a child may import it, else None."""
    return None if problem_with_main() else main_module()


def problem_with_main() -> str | None:
    """Says why a child cannot find anything in the main module."""
    if main_module() is None:
        return "the main module was not started from a file or with -m"
    path = getattr(sys.modules["__main__"], "__file__", None)
    if path is None or not _has_guard(path):
        return (
            f"{path} starts its worker whenever it is imported; put what starts it under "
            '`if __name__ == "__main__":`'
        )
    return None


@functools.cache
def _has_guard(path: str) -> bool:
    """True when some `if` of the file asks for `__name__`. A file that cannot be read has no guard."""
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    tests = (node.test for node in ast.walk(tree) if isinstance(node, ast.If))
    return any(
        isinstance(name, ast.Name) and name.id == "__name__" for test in tests for name in ast.walk(test)
    )


def import_main(main: MainModule) -> None:
    """Imports the main module in a child, as `multiprocessing` does. Raises `MainNotImported`."""
    key = "init_main_from_path" if main.name is None else "init_main_from_name"
    _Import.under_way = True
    try:
        multiprocessing.spawn.prepare({key: main.path if main.name is None else main.name})
    except BaseException as error:
        shown = main.path or main.name
        raise MainNotImported(f"importing {shown} raised {type(error).__name__}: {error}") from error
    finally:
        _Import.under_way = False


def refuse_worker_in_child() -> None:
    """Raises where a script starts a worker while a child imports it."""
    if _Import.under_way:
        raise ConfigurationError(
            "this process runs single jobs for a worker and imports its main module, which starts another "
            'worker; put what starts it under `if __name__ == "__main__":`'
        )
