"""Finds and reads the TOML file of the settings; refuses unknown keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tidemill.core.validation import close_matches
from tidemill.errors import ConfigurationError
from tidemill.settings.catalogue import CATALOGUE, SECTIONS, Setting, queue_catalogue
from tidemill.settings.value_types import quote_value
from tidemill.store_url import holds_secrets

OWN_FILE, SHARED_FILE = "tidemill.toml", "pyproject.toml"
APPLICATIONS_TABLE = "applications"


def find_file(config: str | Path | None, environment: Mapping[str, str]) -> Path | None:
    """Returns the path of the TOML file, None if there is none. `config` or TIDEMILL_CONFIG may name the
    file, which must then exist. Otherwise it is tidemill.toml or pyproject.toml in the working directory."""
    if named := config or environment.get("TIDEMILL_CONFIG"):
        path = Path(named)
        if not path.is_file():
            by = "config" if config else "environment TIDEMILL_CONFIG"
            raise ConfigurationError(f"{by}: there is no file {path.absolute()}; correct it, or leave it out")
        return path
    try:
        return _in_working_directory()
    except OSError:  # a service may run in a folder that it may not read, or that no longer exists
        return None


def _in_working_directory() -> Path | None:
    own, shared = Path(OWN_FILE), Path(SHARED_FILE)
    if own.is_file():
        return own
    # Searches the bytes first: parsing TOML costs a start-up more than all other settings.
    return shared if shared.is_file() and b"tool.tidemill" in shared.read_bytes() else None


class SettingsFile(NamedTuple):
    """The content of a TOML file. `values` maps setting names to values. `applications` maps application
    names to their tables; each application checks its own table."""

    values: dict[str, Any]
    applications: dict[str, dict[str, Any]]


EMPTY_FILE = SettingsFile({}, {})


def read_file(path: Path) -> SettingsFile:
    where, table = path.name, _read_table(path)
    applications = _as_table(where, APPLICATIONS_TABLE, table.pop(APPLICATIONS_TABLE, {}))
    return SettingsFile(
        {setting.name: _read_value(where, setting, value) for setting, value in _entries(where, table)},
        {name: _as_table(where, f"{APPLICATIONS_TABLE}.{name}", its) for name, its in applications.items()},
    )


def _read_table(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path.name} is not TOML: {error}; correct it there") from None
    except OSError as error:
        raise ConfigurationError(
            f"{path.name} cannot be read: {error.strerror}; check its permissions"
        ) from None
    if path.name == SHARED_FILE:
        tools = _as_table(path.name, "tool", table.get("tool", {}))
        return _as_table(path.name, "tool.tidemill", tools.get("tidemill", {}))
    return table


def _entries(where: str, table: dict[str, Any]) -> Iterator[tuple[Setting, Any]]:
    for key, value in table.items():
        if key == "queues":
            yield from _queue_entries(where, value)
        elif key in SECTIONS:
            for inner, its in _as_table(where, key, value).items():
                yield _require_known(where, f"{key}.{inner}", CATALOGUE), its
        else:
            yield _require_known(where, key, CATALOGUE), value


def _queue_entries(where: str, queues: Any) -> Iterator[tuple[Setting, Any]]:
    for queue, table in _as_table(where, "queues", queues).items():
        settings = {its.name: its for its in queue_catalogue(queue).values()}
        for key, value in _as_table(where, f"queues.{queue}", table).items():
            yield _require_known(where, f"queues.{queue}.{key}", settings), value


def _as_table(where: str, key: str, value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise ConfigurationError(f"{where}: {key} must be a table; write [{key}] and its keys below")


def _require_known(where: str, name: str, settings: Mapping[str, Setting]) -> Setting:
    if name in settings:
        return settings[name]
    raise ConfigurationError(f"{where}: unknown key {name!r}; {_suggest_key(name, settings)}")


def _suggest_key(name: str, known: Iterable[str]) -> str:
    """Returns a hint for an unknown key: the most similar known key, or else all known keys. The section may
    be missing: `concurency` and `worker.concurency` both give `worker.concurrency`."""
    names = [*known, "queues", APPLICATIONS_TABLE]
    by_end = {known.rpartition(".")[2]: known for known in names}
    if near := close_matches(name, [*SECTIONS, *names]):
        return f"did you mean {near[0]!r}?"
    if near := close_matches(name.rpartition(".")[2], by_end):
        return f"did you mean {by_end[near[0]]!r}?"
    return f"known are {', '.join(names)}"


def _read_value(where: str, setting: Setting, value: Any) -> Any:
    if setting.environment_only:
        raise ConfigurationError(
            f"{where}: {setting.name} is a secret, and secrets come by the environment only; remove it from "
            f"the file and set {setting.variables[0]}"
        )
    if setting.secret and isinstance(value, str) and holds_secrets(value):
        raise ConfigurationError(
            f"{where}: {setting.name} holds a user name, a password or options, and secrets come by the "
            f"environment only; remove it from the file and set {setting.variables[0]}"
        )
    try:
        return setting.kind.read(value)
    except ValueError:
        raise ConfigurationError(
            f"{where}: {setting.name} must be {setting.kind.in_toml}, is {quote_value(value)}"
        ) from None
