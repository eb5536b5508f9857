"""Settings from environment variables and tidemill.toml, checked against their annotations."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Meta, inspect
from msgspec.structs import FieldInfo, fields

from tidemill import ConfigurationError, Secret, Tidemill, TimeOfDay

PositiveInt = Annotated[int, Meta(ge=1)]
NonNegativeInt = Annotated[int, Meta(ge=0)]
PositiveFloat = Annotated[float, Meta(gt=0)]
NonNegativeFloat = Annotated[float, Meta(ge=0)]

NOISY_LOGGERS = ("httpx", "httpx2")


def silence_http_clients() -> None:
    """Sets HTTP client loggers to WARNING, unless the program has set their level."""
    for name in NOISY_LOGGERS:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)


_MAX_VALUE_CHARS = 60  # characters of an invalid value
_SECRET_PATTERN = re.compile(r"(?i)://|@|passw|pwd|secret|token|key")


def describe_type(annotation: Any) -> str:
    """Returns the end of the sentence "must be …" for a value of this type, such as `a whole number of 1 or
    more`. `Meta(description=…)` in the annotation replaces this text."""
    return _describe(inspect.type_info(annotation))


def is_list_type(annotation: Any) -> bool:
    found = inspect.type_info(annotation)
    return isinstance(found.type if isinstance(found, inspect.Metadata) else found, inspect.CollectionType)


def redact_value(value: Any) -> str:
    """Returns an invalid value as text for an error message. Returns *** if the value may be a secret that
    was put into the wrong variable."""
    return "***" if _SECRET_PATTERN.search(str(value)) else repr(value)[:_MAX_VALUE_CHARS]


def _describe(found: inspect.Type) -> str:
    match found:
        case inspect.Metadata():
            said = (found.extra_json_schema or {}).get("description")
            return str(said) if said else _describe(found.type)
        case inspect.IntType():
            return f"a whole number{_describe_bounds(found)}"
        case inspect.FloatType():
            return f"a number{_describe_bounds(found)}"
        case inspect.BoolType():
            return "true or false"
        case inspect.LiteralType():
            return " or ".join(map(str, found.values))
        case inspect.UnionType():
            return " or ".join(_describe(one) for one in found.types if not isinstance(one, inspect.NoneType))
        case inspect.CollectionType():
            return f"a list with commas, each {_describe(found.item_type)}"
        case _:
            return "text"


def _describe_bounds(found: inspect.IntType | inspect.FloatType) -> str:
    if found.ge is not None and found.le is not None:
        return f" from {found.ge:g} to {found.le:g}"
    said = [
        words.format(bound)
        for words, bound in (
            ("of {:g} or more", found.ge),
            ("above {:g}", found.gt),
            ("of at most {:g}", found.le),
            ("below {:g}", found.lt),
        )
        if bound is not None
    ]
    return f" {' and '.join(said)}" if said else ""


_CREDENTIALS = re.compile(r"://(\S*@|\S*\?)")


class ApplicationToml(NamedTuple):
    """A table of tidemill.toml with the settings of one application. `where` is its name in messages, such as
    `tidemill.toml, applications.music`."""

    where: str
    values: Mapping[str, Any]

    def subtable(self, name: str) -> ApplicationToml:
        return ApplicationToml(f"{self.where}.{name}", self.values.get(name, {}))

    def check_keys(self, known: Iterable[str]) -> None:
        """Raises ConfigurationError if this is not a TOML table or contains a key that is not in `known`."""
        names = sorted(known)
        if not isinstance(self.values, Mapping):
            raise ConfigurationError(
                f"{self.where} must be a table; write [{self.where.rpartition(' ')[2]}] and its keys below"
            )
        for name in self.values:
            if name not in names:
                near = get_close_matches(name, names, 1)
                instead = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
                raise ConfigurationError(f"{self.where}: unknown key {name!r}; {instead}")

    def check_no_secret(self, name: str, variable: str, *, secret: bool) -> None:
        """Raises ConfigurationError if the file sets the key `name` to a secret. With `secret=True` every
        value is a secret, otherwise only a URL with a user name, password or options. `variable` is the
        environment variable to use instead."""
        value = self.values.get(name)
        if value is None or not (secret or (isinstance(value, str) and _CREDENTIALS.search(value))):
            return
        what = "is a secret" if secret else "holds a user name, a password or options"
        raise ConfigurationError(
            f"{self.where}.{name} {what}, and secrets come by the environment only; remove it from the file "
            f"and set {variable}"
        )

    def variables(self, prefix: str) -> Iterator[tuple[str, str]]:
        """Yields a pair for each value in this table and its subtables: the name of its environment variable,
        and the full name of its TOML key. Variables begin with `prefix`."""
        for name, value in self.values.items():
            variable = f"{prefix}{name}".upper()
            if isinstance(value, Mapping):
                yield from self.subtable(name).variables(f"{variable}_")
            else:
                yield variable, f"{self.where}.{name}"


EMPTY_TABLE = ApplicationToml("", {})


def load_table(app: Tidemill, name: str) -> ApplicationToml:
    file = app.settings.file
    where = "tidemill.toml" if file is None else file.name
    return ApplicationToml(f"{where}, applications.{name}", app.settings.application(name))


@contextmanager
def name_toml_keys(prefix: str, environment: Mapping[str, str], toml: ApplicationToml) -> Iterator[None]:
    """Context manager for code that reads settings. If a value from the TOML file causes a
    ConfigurationError, its message names the TOML key instead of the environment variable."""
    try:
        yield
    except ConfigurationError as error:
        sentence = str(error)
        for variable, place in toml.variables(prefix):
            if not environment.get(variable, "").strip():
                sentence = re.sub(rf"\b{re.escape(variable)}\b", place, sentence)
        raise ConfigurationError(sentence) from None


SettingsT = TypeVar("SettingsT", bound="EnvironmentSettings")
_log = logging.getLogger("tidemill_apps")


class EnvironmentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of validated settings. Fields marked `Annotated[str, Secret]` are never printed. A field may
    be another settings class; the field's name is then part of the prefix of its variables."""

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={text}" for name, text in redact_values(self).items())
        return f"{type(self).__name__}({values})"


def redact_values(settings: EnvironmentSettings) -> dict[str, str]:
    """Returns a mapping from field name to value as text. A secret that is set appears as ***."""
    secrets = _secret_fields(type(settings))
    values = {name: getattr(settings, name) for name in settings.__struct_fields__}
    return {
        name: ("***" if value else "''") if name in secrets else repr(value) for name, value in values.items()
    }


def read_settings(
    kind: type[SettingsT],
    prefix: str,
    environ: Mapping[str, str] | None = None,
    toml: ApplicationToml = EMPTY_TABLE,
) -> SettingsT:
    """Returns settings of the class `kind`. Each field is read from the environment variable `prefix` + field
    name, or else from the TOML table. An empty variable counts as not set."""
    environment = os.environ if environ is None else environ
    _check_toml(kind, prefix, toml)
    with name_toml_keys(prefix, environment, toml):
        return _read_fields(kind, prefix, environment, toml)


def _check_toml(kind: type[EnvironmentSettings], prefix: str, toml: ApplicationToml) -> None:
    toml.check_keys(kind.__struct_fields__)
    for name, annotation in _annotations(kind).items():
        variable = f"{prefix}{name}".upper()
        if _is_settings(annotation):
            _check_toml(annotation, f"{variable}_", toml.subtable(name))
        else:
            toml.check_no_secret(name, variable, secret=Secret in get_args(annotation))


def _read_fields(
    kind: type[SettingsT], prefix: str, environment: Mapping[str, str], toml: ApplicationToml
) -> SettingsT:
    given: dict[str, Any] = {}
    for field in fields(kind):
        variable = f"{prefix}{field.name}".upper()
        annotation = _annotations(kind)[field.name]
        if _is_settings(annotation):
            given[field.name] = _read_fields(
                annotation, f"{variable}_", environment, toml.subtable(field.name)
            )
        elif text := environment.get(variable, "").strip():
            given[field.name] = _convert_value(annotation, field, variable, text)
        elif field.name in toml.values:
            given[field.name] = _convert_value(annotation, field, variable, toml.values[field.name])
        elif field.required:
            raise ConfigurationError(f"{variable} is not set; set it to {describe_type(annotation)}")
    return kind(**given)


def warn_unknown_variables(
    kind: type[EnvironmentSettings], prefix: str, environ: Mapping[str, str] | None = None
) -> None:
    """Logs a warning for each variable that begins with `prefix` but is not a setting of `kind`. Values are
    not logged."""
    environment = os.environ if environ is None else environ
    known = {variable.removeprefix(prefix): variable for variable in _variables(kind, prefix)}
    for name in sorted(environment):
        rest = name.removeprefix(prefix)
        if rest == name or rest in known or not environment[name].strip():
            continue
        near = get_close_matches(rest, known, 1)
        listed = "the application's README lists those there are"
        instead = f"did you mean {known[near[0]]}?" if near else listed
        _log.warning("%s is set and has no effect; %s", name, instead)


def check_zone(variable: str, zone: str) -> None:
    """Raises ConfigurationError if there is no time zone of that name."""
    if problem := TimeOfDay(0, 0, zone).problem():
        raise ConfigurationError(f"{variable}: {problem.removeprefix('zone: ')}")


def create_app(default_url: str) -> Tidemill:
    """Creates the application. It uses the store at `default_url` if the settings name no store."""
    silence_http_clients()
    app = Tidemill()
    return Tidemill(default_url) if app.settings.origin("url") == "default" else app


def _convert_value(annotation: Any, field: FieldInfo, variable: str, given: Any) -> Any:
    """Returns the value `given`, converted to the type `annotation`. Only texts are converted; a value from
    the TOML file must have the right type. Raises ConfigurationError if the value does not fit."""
    text = isinstance(given, str)
    try:
        if text and is_list_type(annotation):
            given = [part for piece in given.split(",") if (part := piece.strip())]
        return msgspec.convert(given, annotation, strict=not text)
    except msgspec.ValidationError:
        secret = Secret in get_args(annotation)
        otherwise = "" if field.required or secret else f", or leave it out for {field.default!r}"
        # `from None`: the cause may quote more of the value than may be shown.
        raise ConfigurationError(
            f"{variable}: must be {describe_type(annotation)}, "
            f"is {'***' if secret else redact_value(given)}; set such a value{otherwise}"
        ) from None


def _variables(kind: type[EnvironmentSettings], prefix: str) -> Iterator[str]:
    for name, annotation in _annotations(kind).items():
        variable = f"{prefix}{name}".upper()
        if _is_settings(annotation):
            yield from _variables(annotation, f"{variable}_")
        else:
            yield variable


def _is_settings(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, EnvironmentSettings)


def _annotations(kind: type[EnvironmentSettings]) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _secret_fields(kind: type[EnvironmentSettings]) -> set[str]:
    return {name for name, annotation in _annotations(kind).items() if Secret in get_args(annotation)}
