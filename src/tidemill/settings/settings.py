"""The values in effect, each with its origin."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import msgspec

from tidemill.errors import ConfigurationError
from tidemill.settings import toml
from tidemill.settings.catalogue import CATALOGUE, Setting, of_queue
from tidemill.settings.environment import Ignored, from_environment, ours, unread
from tidemill.urls import mask


class Effective(msgspec.Struct, frozen=True):
    """A setting as it may be shown: `value` has no secrets in it."""

    name: str
    value: Any
    origin: str


class Settings:
    """Arguments, the environment and one TOML file, read once when this is loaded.

    `file` is the TOML file that was read, if there is one.
    """

    def __init__(
        self, arguments: Mapping[str, Any], environment: Mapping[str, str], file: Path | None
    ) -> None:
        self.file = file
        self._arguments = {name: value for name, value in arguments.items() if value is not None}
        self._environment = environment
        self._read_as: dict[str, str] = {}
        read = toml.read(file) if file is not None else toml.NOTHING
        self._in_file, self._applications = read.values, read.applications
        for setting in CATALOGUE.values():  # what is wrong is told at the start, not at its first use
            self._found(setting)

    @classmethod
    def load(cls, arguments: Mapping[str, Any] | None = None, *, config: str | Path | None = None) -> Self:
        """`arguments` by the names of their settings; None means not given. `config` names a TOML
        file; without it TIDEMILL_CONFIG does, else it is looked for in the working directory."""
        environment = ours(os.environ)
        return cls(arguments or {}, environment, toml.find(config, environment))

    def __repr__(self) -> str:
        given = (entry for entry in self.effective() if entry.origin != "default")
        return f"<Settings {', '.join(f'{e.name}={e.value!r} ({e.origin})' for e in given)}>"

    def add_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Add what code says later than at the start, as `app.queue(…)` does."""
        self._arguments |= arguments

    def value(self, name: str) -> Any:
        """As it is, a secret too: show `effective()` instead."""
        return self._found(_setting(name))[0]

    def origin(self, name: str) -> str:
        """Where it came from: argument, environment TIDEMILL_URL, tidemill.toml or default."""
        return self._found(_setting(name))[1]

    def set_outside(self, name: str) -> tuple[Any, str]:
        """The value and its origin as they would be without an argument."""
        return self._set(_setting(name))

    def given(self, section: str) -> dict[str, Any]:
        """What was set of a section such as `worker`, by the last part of its names."""
        settings = [s for s in CATALOGUE.values() if s.name.startswith(f"{section}.")]
        return self._given(settings)

    def application(self, name: str) -> Mapping[str, Any]:
        """The table `[applications.NAME]` of the file, for settings of an application's own; empty when there
        is none. What may stand in it is the application's affair."""
        return self._applications.get(name, {})

    def queue(self, name: str) -> dict[str, Any]:
        """What was set of one queue."""
        settings = of_queue(name).values()
        for setting in settings:
            self._refuse_shared(setting)
        return self._given(settings)

    @property
    def queues(self) -> list[str]:
        """The queues that arguments or the file name."""
        named = [name for name in (*self._arguments, *self._in_file) if name.startswith("queues.")]
        return list(dict.fromkeys(name.removeprefix("queues.").rpartition(".")[0] for name in named))

    def effective(self, queues: Iterable[str] = ()) -> list[Effective]:
        """Every setting; of queues only what was set, of those named here and of those the file or
        code set something of."""
        shown = [self._shown(setting) for setting in CATALOGUE.values()]
        for queue in sorted({*queues, *self.queues}):
            entries = (self._shown(setting) for setting in of_queue(queue).values())
            shown += [entry for entry in entries if entry.origin != "default"]
        return shown

    def unread(self, queues: Iterable[str] = ()) -> list[Ignored]:
        """Each TIDEMILL_ variable that nobody reads. `queues` are the ones there are."""
        return unread(self._environment, {*queues, *self.queues})

    def _given(self, settings: Iterable[Setting]) -> dict[str, Any]:
        found = {setting.name.rpartition(".")[2]: self._found(setting) for setting in settings}
        return {key: value for key, (value, origin) in found.items() if origin != "default"}

    def _refuse_shared(self, setting: Setting) -> None:
        """One variable may be read as the settings of two queues: `feeds_key.concurrency` and
        `feeds.key_concurrency`, or those of `my-q` and `my_q`."""
        for variable in setting.variables:
            if not self._environment.get(variable):
                continue
            other = self._read_as.setdefault(variable, setting.name)
            if other != setting.name:
                raise ConfigurationError(
                    f"environment {variable}: stands for {other} as well as for {setting.name}; "
                    "say in code or in a TOML file which is meant, and remove the variable"
                )

    def _found(self, setting: Setting) -> tuple[Any, str]:
        if setting.name in self._arguments:
            return self._arguments[setting.name], "argument"
        return self._set(setting)

    def _set(self, setting: Setting) -> tuple[Any, str]:
        if found := from_environment(self._environment, setting):
            return found
        if self.file is not None and setting.name in self._in_file:
            return self._in_file[setting.name], self.file.name
        return setting.default, "default"

    def _shown(self, setting: Setting) -> Effective:
        value, origin = self._found(setting)
        shown = mask(str(value)) if setting.secret and value is not None else value
        return Effective(setting.name, shown, origin)


def _setting(name: str) -> Setting:
    if name in CATALOGUE:
        return CATALOGUE[name]
    section, _, rest = name.partition(".")
    queue, _, key = rest.rpartition(".")
    found = of_queue(queue).get(key) if section == "queues" else None
    if found is None:
        raise ConfigurationError(f"there is no setting {name!r}; known are {', '.join(CATALOGUE)}")
    return found
