"""`module:app` as typed, or a name that an installed package offers → the application there."""

from __future__ import annotations

import functools
import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType

import click

import tidemill
from tidemill.app import Tidemill
from tidemill.app import application as making
from tidemill.cli import installed
from tidemill.errors import TidemillError
from tidemill.settings import Settings


def as_set() -> str | None:
    """The application that the settings name: TIDEMILL_APP, or `app` in the TOML file."""
    named: str | None = Settings.load().value("app")
    return named


def required(typed: str | None) -> str:
    """What was typed, or set."""
    if spec := typed or as_set():
        return spec
    raise click.UsageError(
        "say which application, such as myproject.jobs:app: here, as TIDEMILL_APP, or as app in tidemill.toml"
    )


def load(spec: str) -> Tidemill:
    """The working directory is importable, as with `python -m`."""
    found = _found(spec)
    found.loaded_as = spec
    return found


def _found(spec: str) -> Tidemill:
    if not _is_a_name(spec):
        return _loaded(spec)
    offer = installed.find(spec)
    try:
        return _loaded(f"{offer.module}:{offer.attr}")
    except click.UsageError as error:
        why = error.__cause__
        if isinstance(why, TidemillError):  # of a setting: where in the package it was found is no help
            raise click.UsageError(str(why)) from why
        if isinstance(why, ModuleNotFoundError) and (told := installed.remedy(offer, why.name)):
            raise click.UsageError(told) from why
        raise


def _is_a_name(spec: str) -> bool:
    return ":" not in spec and not spec.endswith(".py")


def _loaded(spec: str) -> Tidemill:
    module_name, attribute = _parts(spec)
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


def _parts(spec: str) -> tuple[str, str]:
    module_name, colon, attribute = spec.partition(":")
    if module_name.endswith(".py"):
        dotted = ".".join(Path(module_name).with_suffix("").parts)
        raise click.UsageError(
            f"app: {module_name!r} is a file, not a module; write {dotted}:{attribute or 'app'}"
        )
    if not (colon and module_name and attribute):
        raise click.UsageError(f"app: {spec!r} is not of the form module:app, such as myproject.jobs:app")
    return module_name, attribute


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
    except SystemExit:
        raise click.UsageError(
            f"app: module {name!r} ends the program when it is imported; put what runs as a script "
            'under `if __name__ == "__main__":`'
        ) from None


def _applications(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Tidemill)]
    if not names:
        return "it has no Tidemill application"
    return "write " + " or ".join(f"{module.__name__}:{name}" for name in names)


def _raised_in_user_code(error: BaseException) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return Path(frames[-1].filename) != Path(__file__)


def _import_failed(module: str, error: BaseException) -> str:
    """What we raise ourselves is a whole sentence. Where it came from is a line of the user's, unless it
    is the one that makes the application: what is wrong then is in a setting, which the sentence names."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = str(Path(tidemill.__file__).parent)
    theirs = [f for f in frames if "importlib" not in f.filename and not f.filename.startswith(ours)]
    where = f"{theirs[-1].filename}:{theirs[-1].lineno}" if theirs else module
    if not isinstance(error, TidemillError):
        return f"app: module {module!r} could not be imported: {type(error).__name__}: {error} at {where}"
    made = any(Path(f.filename) == Path(making.__file__) and f.name == "__init__" for f in frames)
    return str(error) if made else f"{error} ({where})"
