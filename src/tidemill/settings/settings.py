"""Merges arguments, environment variables and a TOML file into the settings in effect, and resolves the store
URL."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

from tidemill.core.validation import close_matches
from tidemill.errors import ConfigurationError
from tidemill.settings import toml
from tidemill.settings.catalogue import CATALOGUE, OTHER_VARIABLES, Setting, queue_catalogue
from tidemill.settings.value_types import quote_value
from tidemill.store_url import StoreUrl, mask_url

PREFIX = "TIDEMILL_"


def own_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment variables that Tidemill may read. The others are dropped, because they may
    contain secrets of other programs."""
    shared = {name for setting in CATALOGUE.values() for name in setting.variables}
    return {name: text for name, text in environment.items() if name.startswith(PREFIX) or name in shared}


def read_variable(environment: Mapping[str, str], setting: Setting) -> tuple[Any, str] | None:
    """Returns the value of a setting and its origin, such as `environment TIDEMILL_URL`. Returns None if no
    variable of the setting has a value. An empty variable counts as unset."""
    for name in setting.variables:
        if text := environment.get(name):
            return _parse_variable(setting, name, text), f"environment {name}"
    return None


def _parse_variable(setting: Setting, variable: str, text: str) -> Any:
    try:
        return setting.kind.read_text(text)
    except ValueError:
        # Without the cause, which may quote more of the value than may be shown.
        raise ConfigurationError(
            f"environment {variable}: must be {setting.kind.as_text}, is {quote_value(text)}"
        ) from None


class IgnoredSetting(NamedTuple):
    """A setting that is set but has no effect. `setting` is its name or variable, `why` the reason. Secrets
    are never shown."""

    setting: str
    why: str

    def __str__(self) -> str:
        return f"{self.setting} is set and {self.why}"


def unread_variables(environment: Mapping[str, str], queues: Iterable[str]) -> list[IgnoredSetting]:
    """Returns the environment variables that start with TIDEMILL_ and that no setting uses. `queues` are the
    known queues, because their settings have variables too."""
    settings = [*CATALOGUE.values(), *(its for queue in queues for its in queue_catalogue(queue).values())]
    known = [*OTHER_VARIABLES, *(name for setting in settings for name in setting.variables)]
    unknown = sorted(n for n in environment if n.startswith(PREFIX) and n not in known)
    return [IgnoredSetting(name, f"has no effect; {_suggest_variable(name, known)}") for name in unknown]


def _suggest_variable(name: str, known: list[str]) -> str:
    if near := close_matches(name, known):
        return f"did you mean {near[0]}?"
    if name.startswith("TIDEMILL_QUEUES_"):
        return "no queue of that name is declared, or queues have no such setting"
    return "docs/reference/settings.md lists the variables there are"


class EffectiveSetting(msgspec.Struct, frozen=True):
    """A setting with its value and the origin of the value. Secrets in `value` are masked, so that it may be
    shown."""

    name: str
    value: Any
    origin: str


class Settings:
    """The settings in effect: arguments, the environment and one TOML file, read once.

    `file` is the TOML file that was read, if there is one."""

    def __init__(
        self, arguments: Mapping[str, Any], environment: Mapping[str, str], file: Path | None
    ) -> None:
        self.file = file
        self._arguments = {name: value for name, value in arguments.items() if value is not None}
        self._environment = environment
        self._read_as: dict[str, str] = {}
        read = toml.read_file(file) if file is not None else toml.EMPTY_FILE
        self._in_file, self._applications = read.values, read.applications
        for setting in CATALOGUE.values():  # errors appear at the start, not at the first use
            self._resolve(setting)

    @classmethod
    def load(cls, arguments: Mapping[str, Any] | None = None, *, config: str | Path | None = None) -> Self:
        """Returns the settings of this process. `arguments` maps setting names to values; None means not
        given.

        `config` is the path of a TOML file. The default is the file that TIDEMILL_CONFIG names, then
        tidemill.toml or pyproject.toml in the working directory."""
        environment = own_variables(os.environ)
        return cls(arguments or {}, environment, toml.find_file(config, environment))

    def __repr__(self) -> str:
        entries = (entry for entry in self.effective() if entry.origin != "default")
        return f"<Settings {', '.join(f'{e.name}={e.value!r} ({e.origin})' for e in entries)}>"

    def add_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Adds values that code sets later, as `app.queue(…)` does."""
        self._arguments |= arguments

    def value(self, name: str) -> Any:
        """Returns the value of a setting. A secret is not masked; use `effective()` for values that are
        shown."""
        return self._resolve(_find_setting(name))[0]

    def origin(self, name: str) -> str:
        """Returns the source of the value: `argument`, `environment TIDEMILL_URL`, `tidemill.toml` or
        `default`."""
        return self._resolve(_find_setting(name))[1]

    def outside_value(self, name: str) -> tuple[Any, str]:
        """Returns the value and origin of a setting from the environment, the TOML file or the default.
        Arguments are ignored."""
        return self._resolve_outside_code(_find_setting(name))

    def configured(self, section: str) -> dict[str, Any]:
        """Returns the values that were set in a section such as `worker`, without defaults. The keys are the
        last parts of the setting names, such as `lease`."""
        settings = [s for s in CATALOGUE.values() if s.name.startswith(f"{section}.")]
        return self._set_values(settings)

    def application(self, name: str) -> Mapping[str, Any]:
        """Returns the table `[applications.NAME]` of the TOML file; empty if there is none. The table has the
        application's own settings, which only the application checks."""
        return self._applications.get(name, {})

    def queue(self, name: str) -> dict[str, Any]:
        """Returns the values that were set for one queue, without defaults. The keys are setting names such
        as `weight`."""
        settings = queue_catalogue(name).values()
        for setting in settings:
            self._refuse_shared(setting)
        return self._set_values(settings)

    @property
    def queues(self) -> list[str]:
        """The names of the queues that have a value in the arguments or in the file."""
        named = [name for name in (*self._arguments, *self._in_file) if name.startswith("queues.")]
        return list(dict.fromkeys(name.removeprefix("queues.").rpartition(".")[0] for name in named))

    def effective(self, queues: Iterable[str] = ()) -> list[EffectiveSetting]:
        """Returns every setting with its value and origin. Queue settings are included only if they were set.
        `queues`: queues to include besides those in the arguments and the file."""
        shown = [self._effective(setting) for setting in CATALOGUE.values()]
        for queue in sorted({*queues, *self.queues}):
            entries = (self._effective(setting) for setting in queue_catalogue(queue).values())
            shown += [entry for entry in entries if entry.origin != "default"]
        return shown

    def unread(self, queues: Iterable[str] = ()) -> list[IgnoredSetting]:
        """Returns the environment variables that start with TIDEMILL_ and that no setting uses. `queues` are
        queues that the caller knows, in addition to the queues in the settings."""
        return unread_variables(self._environment, {*queues, *self.queues})

    def _set_values(self, settings: Iterable[Setting]) -> dict[str, Any]:
        found = {setting.name.rpartition(".")[2]: self._resolve(setting) for setting in settings}
        return {key: value for key, (value, origin) in found.items() if origin != "default"}

    def _refuse_shared(self, setting: Setting) -> None:
        """Raises ConfigurationError if another queue setting reads the same environment variable. For
        example, the queues `my-q` and `my_q` share their variables."""
        for variable in setting.variables:
            if not self._environment.get(variable):
                continue
            other = self._read_as.setdefault(variable, setting.name)
            if other != setting.name:
                raise ConfigurationError(
                    f"environment {variable}: stands for {other} as well as for {setting.name}; "
                    "say in code or in a TOML file which is meant, and remove the variable"
                )

    def _resolve(self, setting: Setting) -> tuple[Any, str]:
        if setting.name in self._arguments:
            return self._arguments[setting.name], "argument"
        return self._resolve_outside_code(setting)

    def _resolve_outside_code(self, setting: Setting) -> tuple[Any, str]:
        if found := read_variable(self._environment, setting):
            return found
        if self.file is not None and setting.name in self._in_file:
            return self._in_file[setting.name], self.file.name
        return setting.default, "default"

    def _effective(self, setting: Setting) -> EffectiveSetting:
        value, origin = self._resolve(setting)
        shown = mask_url(str(value)) if setting.secret and value is not None else value
        return EffectiveSetting(setting.name, shown, origin)


def _find_setting(name: str) -> Setting:
    if name in CATALOGUE:
        return CATALOGUE[name]
    section, _, rest = name.partition(".")
    queue, _, key = rest.rpartition(".")
    found = queue_catalogue(queue).get(key) if section == "queues" else None
    if found is None:
        raise ConfigurationError(f"there is no setting {name!r}; known are {', '.join(CATALOGUE)}")
    return found


SHARED_URL_VARIABLES = ("REDIS_URL", "DATABASE_URL")
"""These variables often name another program's database."""


def resolve_store_url(settings: Settings) -> StoreUrl:
    """Returns the parsed store URL. Raises ConfigurationError if the URL is invalid; the message names the
    origin of the URL."""
    url, origin = settings.value("url"), settings.origin("url")
    if origin.removeprefix("environment ") in SHARED_URL_VARIABLES:
        return _resolve_shared_url(url, origin)
    return StoreUrl.parse(url, "url" if origin in ("argument", "default") else f"url from {origin}")


def _resolve_shared_url(url: str, origin: str) -> StoreUrl:
    """Returns the parsed URL of REDIS_URL or DATABASE_URL. Raises ConfigurationError if the URL is invalid or
    names a SQLite file."""
    remedy = f"set TIDEMILL_URL, which wins over {origin.removeprefix('environment ')}"
    try:
        found = StoreUrl.parse(url, f"url from {origin}")
    except ConfigurationError as error:
        raise ConfigurationError(f"{error}; {remedy}") from None
    if found.scheme == "sqlite":
        # Tidemill brings its own SQLite; two copies of it in one process on one file damage the file.
        raise ConfigurationError(
            f"url from {origin}: {found} may be another program's database, where jobs must not go; {remedy}"
        )
    return found


def find_overruled_url(settings: Settings, used: StoreUrl) -> IgnoredSetting | None:
    """Returns a warning if the settings name another store than `used`, the store that the application uses;
    else None."""
    url, origin = settings.outside_value("url")
    if origin == "default":
        return None
    try:
        configured = StoreUrl.parse(url)
        shown = str(configured)
    except ConfigurationError:
        configured, shown = None, mask_url(url)
    if configured is not None and _url_location(configured) == _url_location(used):
        return None
    where = origin.removeprefix("environment ") if origin.startswith("environment ") else f"url in {origin}"
    return IgnoredSetting(
        where,
        f"it says {shown}, but the application was made with {used}, which wins; leave that out in "
        "Tidemill(…) to use what is set",
    )


def _url_location(url: StoreUrl) -> tuple[str, Path | str]:
    return url.scheme, Path(url.path).absolute() if url.path else url.server
