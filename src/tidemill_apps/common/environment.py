"""Settings of an application from environment variables and a file, and the application itself.

class MusicSettings(Settings, frozen=True, kw_only=True):
    batch_size: Annotated[int, Meta(ge=1)] = 10
    password: Annotated[str, Secret] = ""

settings = read(MusicSettings, "MUSIC_")  # MUSIC_BATCH_SIZE, MUSIC_PASSWORD
settings = read(MusicSettings, "MUSIC_", toml=table(app, "music"))  # or batch_size in [applications.music]
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec
from msgspec.structs import FieldInfo, fields

from tidemill import ConfigurationError, Secret, Tidemill
from tidemill_apps.common.quiet import quieten_clients
from tidemill_apps.common.toml import NOTHING, Table, naming
from tidemill_apps.common.wording import is_list, shown, wanted

Read = TypeVar("Read", bound="Settings")
_log = logging.getLogger("tidemill_apps")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Values that were read and fit their annotations. A field marked `Annotated[str, Secret]` is never
    shown, neither here nor in an error. A field that is itself `Settings` is read with its name before
    those of its own fields."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={text}' for name, text in told(self).items())})"


def told(settings: Settings) -> dict[str, str]:
    """Every value as it may be shown: to a person, on a page, in a log."""
    secrets = _secret_fields(type(settings))
    values = {name: getattr(settings, name) for name in settings.__struct_fields__}
    return {
        name: ("***" if value else "''") if name in secrets else repr(value) for name, value in values.items()
    }


def read(
    kind: type[Read], prefix: str, environ: Mapping[str, str] | None = None, toml: Table = NOTHING
) -> Read:
    """Each field from the variable of its name behind `prefix`, else from its name in the table. An empty
    variable is as good as none: shells and compose files leave such behind."""
    environment = os.environ if environ is None else environ
    _check(kind, prefix, toml)
    with naming(prefix, environment, toml):
        return _read(kind, prefix, environment, toml)


def _check(kind: type[Settings], prefix: str, toml: Table) -> None:
    toml.require(kind.__struct_fields__)
    for name, annotation in _annotations(kind).items():
        variable = f"{prefix}{name}".upper()
        if _is_settings(annotation):
            _check(annotation, f"{variable}_", toml.inner(name))
        else:
            toml.refuse_secret(name, variable, secret=Secret in get_args(annotation))


def _read(kind: type[Read], prefix: str, environment: Mapping[str, str], toml: Table) -> Read:
    given: dict[str, Any] = {}
    for field in fields(kind):
        variable = f"{prefix}{field.name}".upper()
        annotation = _annotations(kind)[field.name]
        if _is_settings(annotation):
            given[field.name] = _read(annotation, f"{variable}_", environment, toml.inner(field.name))
        elif text := environment.get(variable, "").strip():
            given[field.name] = _value(annotation, field, variable, text)
        elif field.name in toml.values:
            given[field.name] = _value(annotation, field, variable, toml.values[field.name])
        elif field.required:
            raise ConfigurationError(f"{variable} is not set; set it to {wanted(annotation)}")
    return kind(**given)


def warn_of_unread(kind: type[Settings], prefix: str, environ: Mapping[str, str] | None = None) -> None:
    """Of each variable with the prefix that is none of the settings, by its name: its value may be a secret.
    No more than a warning: Kubernetes sets MUSIC_SERVICE_HOST for everyone beside a service `music`."""
    environment = os.environ if environ is None else environ
    known = {variable.removeprefix(prefix): variable for variable in _variables(kind, prefix)}
    for name in sorted(environment):
        rest = name.removeprefix(prefix)
        if rest == name or rest in known or not environment[name].strip():
            continue
        near = get_close_matches(rest, known, 1)
        listed = "the application's README lists those there are"
        instead = f"did you mean {known[near[0]]}?" if near else listed
        _log.warning("%s is set and nobody reads it; %s", name, instead)


def application(default_url: str) -> Tidemill:
    """An application whose jobs are where the environment or tidemill.toml say, else at `default_url`."""
    quieten_clients()
    app = Tidemill()
    return Tidemill(default_url) if app.settings.origin("url") == "default" else app


def _value(annotation: Any, field: FieldInfo, variable: str, given: Any) -> Any:
    """Text is read as a variable is; what is no text is of a file, and has to be what it should be."""
    text = isinstance(given, str)
    try:
        if text and is_list(annotation):
            given = [part for piece in given.split(",") if (part := piece.strip())]
        return msgspec.convert(given, annotation, strict=not text)
    except msgspec.ValidationError:
        secret = Secret in get_args(annotation)
        otherwise = "" if field.required or secret else f", or leave it out for {field.default!r}"
        # Not the cause: it may quote more of the value than may be shown.
        raise ConfigurationError(
            f"{variable}: must be {wanted(annotation)}, is {'***' if secret else shown(given)}; "
            f"set such a value{otherwise}"
        ) from None


def _variables(kind: type[Settings], prefix: str) -> Iterator[str]:
    for name, annotation in _annotations(kind).items():
        variable = f"{prefix}{name}".upper()
        if _is_settings(annotation):
            yield from _variables(annotation, f"{variable}_")
        else:
            yield variable


def _is_settings(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Settings)


def _annotations(kind: type[Settings]) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _secret_fields(kind: type[Settings]) -> set[str]:
    return {name for name, annotation in _annotations(kind).items() if Secret in get_args(annotation)}
