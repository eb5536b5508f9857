"""Settings from a TOML file: found, read, and refused where it says what nobody would read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tidemill.errors import ConfigurationError
from tidemill.hints import close_to
from tidemill.settings.catalogue import CATALOGUE, SECTIONS, Setting, of_queue
from tidemill.settings.kinds import quoted
from tidemill.urls import holds_secrets

OWN, SHARED = "tidemill.toml", "pyproject.toml"
APPLICATIONS = "applications"


def find(config: str | Path | None, environment: Mapping[str, str]) -> Path | None:
    """The file named, or the one in the working directory. One that is named must be there."""
    if named := config or environment.get("TIDEMILL_CONFIG"):
        path = Path(named)
        if not path.is_file():
            by = "config" if config else "environment TIDEMILL_CONFIG"
            raise ConfigurationError(f"{by}: there is no file {path.absolute()}; correct it, or leave it out")
        return path
    try:
        return _in_working_directory()
    except OSError:  # a service may run where it may not look, or where no folder is any more
        return None


def _in_working_directory() -> Path | None:
    own, shared = Path(OWN), Path(SHARED)
    if own.is_file():
        return own
    # Looked for as text first: reading TOML costs a start-up more than all other settings do.
    return shared if shared.is_file() and b"tool.tidemill" in shared.read_bytes() else None


class File(NamedTuple):
    """`values` by the names of their settings. What is below `applications` is theirs: what it may say is for
    each of them to judge."""

    values: dict[str, Any]
    applications: dict[str, dict[str, Any]]


NOTHING = File({}, {})


def read(path: Path) -> File:
    where, table = path.name, _table(path)
    applications = _as_table(where, APPLICATIONS, table.pop(APPLICATIONS, {}))
    return File(
        {setting.name: _value(where, setting, value) for setting, value in _entries(where, table)},
        {name: _as_table(where, f"{APPLICATIONS}.{name}", its) for name, its in applications.items()},
    )


def _table(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path.name} is not TOML: {error}; correct it there") from None
    except OSError as error:
        raise ConfigurationError(
            f"{path.name} cannot be read: {error.strerror}; check its permissions"
        ) from None
    if path.name == SHARED:
        tools = _as_table(path.name, "tool", table.get("tool", {}))
        return _as_table(path.name, "tool.tidemill", tools.get("tidemill", {}))
    return table


def _entries(where: str, table: dict[str, Any]) -> Iterator[tuple[Setting, Any]]:
    for key, value in table.items():
        if key == "queues":
            yield from _of_queues(where, value)
        elif key in SECTIONS:
            for inner, its in _as_table(where, key, value).items():
                yield _known(where, f"{key}.{inner}", CATALOGUE), its
        else:
            yield _known(where, key, CATALOGUE), value


def _of_queues(where: str, queues: Any) -> Iterator[tuple[Setting, Any]]:
    for queue, table in _as_table(where, "queues", queues).items():
        settings = {its.name: its for its in of_queue(queue).values()}
        for key, value in _as_table(where, f"queues.{queue}", table).items():
            yield _known(where, f"queues.{queue}.{key}", settings), value


def _as_table(where: str, key: str, value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise ConfigurationError(f"{where}: {key} must be a table; write [{key}] and its keys below")


def _known(where: str, name: str, settings: Mapping[str, Setting]) -> Setting:
    if name in settings:
        return settings[name]
    raise ConfigurationError(f"{where}: unknown key {name!r}; {_instead(name, settings)}")


def _instead(name: str, known: Iterable[str]) -> str:
    """`concurency` stands for `worker.concurrency` as well as `worker.concurency` does."""
    names = [*known, "queues", APPLICATIONS]
    by_end = {known.rpartition(".")[2]: known for known in names}
    if near := close_to(name, [*SECTIONS, *names]):
        return f"did you mean {near[0]!r}?"
    if near := close_to(name.rpartition(".")[2], by_end):
        return f"did you mean {by_end[near[0]]!r}?"
    return f"known are {', '.join(names)}"


def _value(where: str, setting: Setting, value: Any) -> Any:
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
            f"{where}: {setting.name} must be {setting.kind.in_toml}, is {quoted(value)}"
        ) from None
