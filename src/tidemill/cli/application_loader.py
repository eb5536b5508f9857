"""Loads the application that a command names: `module:app`, or the name of an installed one."""

from __future__ import annotations

import functools
import importlib
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import click

import tidemill
from tidemill.app import Tidemill
from tidemill.app import application as application_module
from tidemill.cli.output import suggest_names
from tidemill.errors import TidemillError
from tidemill.settings import Settings

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


ENTRY_POINT_GROUP = "tidemill.applications"


def find_installed(name: str) -> EntryPoint:
    found = [entry_point for entry_point in _entry_points() if entry_point.name == name]
    if not found:
        raise click.UsageError(_unknown_name_message(name))
    if len({entry_point.value for entry_point in found}) > 1:
        specs = " or ".join(sorted(entry_point.value for entry_point in found))
        raise click.UsageError(f"app: {name!r} is the name of several applications; write {specs}")
    return found[0]


def missing_package_message(entry_point: EntryPoint, missing: str | None) -> str | None:
    """Returns the message that names the pip extra to install, for an application that could not import the
    module `missing`. Returns None if no extra would help."""
    package = entry_point.dist
    own = entry_point.module.partition(".")[0]
    if package is None or missing is None or missing.partition(".")[0] == own:
        return None
    if entry_point.name not in (package.metadata.get_all("Provides-Extra") or ()):
        return None
    return (
        f"app: {entry_point.name} needs the package of the module {missing!r}, which is not installed; "
        f"pip install '{package.name}[{entry_point.name}]'"
    )


def complete_applications(_ctx: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    """Returns the names of installed applications that start with `prefix`, for shell completion."""
    return sorted(
        {entry_point.name for entry_point in _entry_points() if entry_point.name.startswith(prefix)}
    )


def _entry_points() -> Iterable[EntryPoint]:
    from importlib.metadata import entry_points

    return entry_points(group=ENTRY_POINT_GROUP)


def _unknown_name_message(name: str) -> str:
    like = f"{name}:app" if name.replace(".", "_").isidentifier() else "myproject.jobs:app"
    names = {entry_point.name for entry_point in _entry_points()}
    return (
        f"app: no installed package has an application named {name!r}: {suggest_names(name, names)}; "
        f"one of your own is written module:app, such as {like}"
    )


def application_setting() -> str | None:
    """Returns the application named by TIDEMILL_APP, or by `app` in the TOML file. None if neither is set."""
    named: str | None = Settings.load().value("app")
    return named


def require_spec(typed: str | None) -> str:
    """Returns the application given on the command line (`typed`), else the application in the settings.
    Raises a usage error if neither is given."""
    if spec := typed or application_setting():
        return spec
    raise click.UsageError(
        "say which application, such as myproject.jobs:app: here, as TIDEMILL_APP, or as app in tidemill.toml"
    )


def load_application(spec: str) -> Tidemill:
    """Imports and returns the application that `spec` names: `module:app`, or the name of an installed
    application. Raises a usage error if this fails.

    Modules in the working directory can be imported, as with `python -m`."""
    found = _find_application(spec)
    found.application_spec = spec
    return found


def _find_application(spec: str) -> Tidemill:
    if not _is_installed_name(spec):
        return _load_attribute(spec)
    entry_point = find_installed(spec)
    try:
        return _load_attribute(f"{entry_point.module}:{entry_point.attr}")
    except click.UsageError as error:
        why = error.__cause__
        if isinstance(why, TidemillError):  # an invalid setting: the package's line does not help the user
            raise click.UsageError(str(why)) from why
        if isinstance(why, ModuleNotFoundError) and (
            message := missing_package_message(entry_point, why.name)
        ):
            raise click.UsageError(message) from why
        raise


def _is_installed_name(spec: str) -> bool:
    return ":" not in spec and not spec.endswith(".py")


def _load_attribute(spec: str) -> Tidemill:
    module_name, attribute = _split_spec(spec)
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = _import_module(module_name, folder)
    try:
        found = functools.reduce(getattr, attribute.split("."), module)
    except AttributeError as error:
        if _raised_in_user_code(error):
            raise click.UsageError(_import_error_message(module_name, error)) from error
        raise click.UsageError(
            f"app: module {module_name!r} has no {attribute!r}; {_list_applications(module)}"
        ) from None
    except Exception as error:
        raise click.UsageError(_import_error_message(module_name, error)) from error
    if not isinstance(found, Tidemill):
        raise click.UsageError(
            f"app: {spec} is a {type(found).__name__}, not a Tidemill application; "
            f"{_list_applications(module)}"
        )
    return found


def _split_spec(spec: str) -> tuple[str, str]:
    module_name, colon, attribute = spec.partition(":")
    if module_name.endswith(".py"):
        dotted = ".".join(Path(module_name).with_suffix("").parts)
        raise click.UsageError(
            f"app: {module_name!r} is a file, not a module; write {dotted}:{attribute or 'app'}"
        )
    if not (colon and module_name and attribute):
        raise click.UsageError(f"app: {spec!r} is not of the form module:app, such as myproject.jobs:app")
    return module_name, attribute


def _import_module(name: str, folder: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # An import that fails inside the module is not a mistyped module name.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise click.UsageError(_import_error_message(name, error)) from error
        raise click.UsageError(
            f"app: module {error.name!r} was not found in {folder} nor among the installed packages; "
            "go to the folder it is in, or correct the name"
        ) from None
    except Exception as error:
        raise click.UsageError(_import_error_message(name, error)) from error
    except SystemExit:
        raise click.UsageError(
            f"app: module {name!r} ends the program when it is imported; put what runs as a script "
            'under `if __name__ == "__main__":`'
        ) from None


def _list_applications(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Tidemill)]
    if not names:
        return "it has no Tidemill application"
    return "write " + " or ".join(f"{module.__name__}:{name}" for name in names)


def _raised_in_user_code(error: BaseException) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return Path(frames[-1].filename) != Path(__file__)


def _import_error_message(module: str, error: BaseException) -> str:
    """Returns the message for a failed import of `module`, with file and line of the user's code that
    failed."""
    frames = traceback.extract_tb(error.__traceback__)
    package = str(Path(tidemill.__file__).parent)
    user_frames = [f for f in frames if "importlib" not in f.filename and not f.filename.startswith(package)]
    where = f"{user_frames[-1].filename}:{user_frames[-1].lineno}" if user_frames else module
    if not isinstance(error, TidemillError):
        return f"app: module {module!r} could not be imported: {type(error).__name__}: {error} at {where}"
    module_path = Path(application_module.__file__)
    in_constructor = any(Path(f.filename) == module_path and f.name == "__init__" for f in frames)
    return str(error) if in_constructor else f"{error} ({where})"
