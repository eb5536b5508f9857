"""Which application or store a command is about."""

from __future__ import annotations

import asyncio
import functools
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import click

from tidemill.app import Tidemill
from tidemill.errors import StoreUnavailable

T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """What the common options said. `json` asks for output a program can read."""

    app: str | None
    url: str | None
    json: bool

    def application(self) -> Tidemill:
        if self.app:
            return load(self.app)
        if self.url or os.environ.get("TIDEMILL_URL"):
            return Tidemill(self.url)
        raise click.UsageError("say which store: --app module:app, --url sqlite:///jobs.db, or TIDEMILL_URL")

    def run(self, work: Callable[[Tidemill], Coroutine[Any, Any, T]]) -> T:
        """Run `work` with the application's store opened, and close it again. Only a store that is
        there already: looking at a mistyped one must not make it."""
        app = self.application()
        _require_store(app)

        async def opened() -> T:
            try:
                await app.client.store(declare=False)
                return await work(app)
            finally:
                await app.close()

        return asyncio.run(opened())


def with_target(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the common options; the command gets them as one `target`. What a group was given
    holds for its subcommands, so `tidemill jobs --json show ID` works too."""

    @click.option("--app", metavar="MODULE:APP", help="The application, such as myproject.jobs:app.")
    @click.option("--url", help="The store, such as sqlite:///jobs.db. Default: TIDEMILL_URL.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @functools.wraps(command)
    def wrapped(*, app: str | None, url: str | None, as_json: bool, **options: Any) -> Any:
        ctx = click.get_current_context()
        above = ctx.obj if isinstance(ctx.obj, Target) else Target(None, None, json=False)
        ctx.obj = Target(app or above.app, url or above.url, json=as_json or above.json)
        return command(ctx.obj, **options)

    return wrapped


def _require_store(app: Tidemill) -> None:
    if app._store is not None:  # noqa: SLF001 - a store the program made itself has no URL
        return
    if app.url.scheme == "memory":
        raise click.UsageError(
            "url: memory:// is always empty here, it lives inside the program that uses it; "
            "name a sqlite:/// store"
        )
    if not Path(app.url.path).exists():
        raise StoreUnavailable(
            f"there is no database {Path(app.url.path).absolute()}: check the URL and the folder you are in; "
            "the first enqueue or worker makes it"
        )


def load(spec: str) -> Tidemill:
    """`module:attribute` → the application there. The working directory is importable, as with
    `python -m`."""
    module_name, colon, attribute = spec.partition(":")
    if not (colon and module_name and attribute):
        raise click.UsageError(f"app: {spec!r} is not of the form module:app, such as myproject.jobs:app")
    if module_name.endswith(".py"):
        dotted = ".".join(Path(module_name).with_suffix("").parts)
        raise click.UsageError(f"app: {module_name!r} is a file, not a module; write {dotted}:{attribute}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    module = _import(module_name, here)
    try:
        found = functools.reduce(getattr, attribute.split("."), module)
    except AttributeError as error:
        if _raised_in_user_code(error):
            raise click.UsageError(_import_failed(module_name, error)) from error
        raise click.UsageError(
            f"app: module {module_name!r} has no {attribute!r}; {_applications(module)}"
        ) from None
    except Exception as error:
        raise click.UsageError(_import_failed(module_name, error)) from error
    if not isinstance(found, Tidemill):
        raise click.UsageError(
            f"app: {spec} is a {type(found).__name__}, not a Tidemill application; {_applications(module)}"
        )
    return found


def _import(name: str, here: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # What the module itself imports in vain is its own trouble, not a mistyped name.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise click.UsageError(_import_failed(name, error)) from error
        raise click.UsageError(
            f"app: module {error.name!r} was not found in {here} nor among the installed packages; "
            "go to the folder it is in, or correct the name"
        ) from None
    except Exception as error:
        raise click.UsageError(_import_failed(name, error)) from error


def _applications(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Tidemill)]
    if not names:
        return "it has no Tidemill application"
    return "write " + " or ".join(f"{module.__name__}:{name}" for name in names)


def _raised_in_user_code(error: BaseException) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return Path(frames[-1].filename) != Path(__file__)


def _import_failed(module: str, error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = "" if "importlib" in last.filename else f" at {last.filename}:{last.lineno}"
    return f"app: module {module!r} could not be imported: {type(error).__name__}: {error}{where}"
