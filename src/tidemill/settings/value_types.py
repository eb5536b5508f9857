"""The types of settings: how a value is checked, and how it is written in an environment variable."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tidemill.core.queues import Retention


class SettingType(msgspec.Struct, frozen=True):
    """The type of a setting.

    - `expected`: completes the sentence "must be …" in an error message
    - `type`: the Python type of the value
    - `from_text`: converts the text of an environment variable to the value that a TOML file would contain
    - `text_example`, `toml_example`: examples for the error message, if the syntax needs one"""

    expected: str
    type: Any
    from_text: Callable[[str], Any] = str
    text_example: str = ""
    toml_example: str = ""

    @property
    def as_text(self) -> str:
        return self.expected + (f", such as {self.text_example}" if self.text_example else "")

    @property
    def in_toml(self) -> str:
        return self.expected + (f", such as {self.toml_example}" if self.toml_example else "")

    def read(self, value: Any) -> Any:
        """Returns the checked value from a TOML file. Raises ValueError if the value does not fit the
        type."""
        return msgspec.convert(value, self.type)

    def read_text(self, text: str) -> Any:
        """Returns the checked value from the text of an environment variable. Raises ValueError if the text
        does not fit the type."""
        return msgspec.convert(self.from_text(text.strip()), self.type, strict=False)


def _parse_pairs(text: str) -> dict[str, str | None]:
    """Returns the names and values in a text. `feeds=5,mail` gives `{"feeds": "5", "mail": None}`. Raises
    ValueError if the text contains a URL."""
    if "://" in text:  # a URL in the wrong variable; as a name it would be shown and stored
        raise ValueError("is a URL")
    found: dict[str, str | None] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, value = (side.strip() for side in part.partition("="))
        found[name] = value if equals else None
    return found


_MAX_SHOWN_CHARACTERS = 60  # characters of a wrong value
_SECRET_PATTERN = re.compile(r"(?i)://|@|passw|pwd|secret|token")
_MAX_SECONDS = 1e10  # seconds; infinity is none
_Count = Annotated[int, Meta(ge=1)]
_Seconds = Annotated[float, Meta(gt=0, le=_MAX_SECONDS)]
_Weights = Annotated[dict[Annotated[str, Meta(min_length=1)], _Count | None], Meta(min_length=1)]


class WeightsType(SettingType, frozen=True):
    def read(self, value: Any) -> Any:
        """Returns the weight of each queue from a TOML file. The value may be a list of names; each weight is
        then None, which means the declared weight."""
        if isinstance(value, list):
            value = dict.fromkeys(msgspec.convert(value, list[str]))
        return super().read(value)


class _RetentionBounds(msgspec.Struct, forbid_unknown_fields=True):
    """The bounds of a retention, as a file or variable gives them. Unknown names are refused, because a
    mistyped bound would mean no bound and keep all jobs."""

    age: Annotated[float, Meta(ge=0, le=_MAX_SECONDS)] | UnsetType = UNSET
    count: Annotated[int, Meta(ge=0)] | UnsetType = UNSET


class RetentionType(SettingType, frozen=True):
    def read(self, value: Any) -> Any:
        return _make_retention(super().read(value))

    def read_text(self, text: str) -> Any:
        return _make_retention(super().read_text(text))


class ChoiceType(SettingType, frozen=True):
    """A setting type that allows one of several words. Upper and lower case make no difference: INFO is read
    as info."""

    def read(self, value: Any) -> Any:
        return super().read(value.lower() if isinstance(value, str) else value)

    def read_text(self, text: str) -> Any:
        return self.read(text.strip())


class AlertRulesType(SettingType, frozen=True):
    """A setting type for alert rules by name. In a TOML file each rule is a table; an environment variable
    has all rules as one JSON object."""

    def read(self, value: Any) -> Any:
        from tidemill.notifications.alert_rules import AlertRule  # most programs have none

        rules = msgspec.convert(value, dict[Annotated[str, Meta(min_length=1, max_length=100)], AlertRule])
        for name, rule in rules.items():
            if problem := rule.problem():
                raise ValueError(f"{name}: {problem}")
        return rules

    def read_text(self, text: str) -> Any:
        return self.read(msgspec.json.decode(text))


def _parse_list(text: str) -> list[str]:
    return [part for piece in text.split(",") if (part := piece.strip())]


def _make_retention(bounds: _RetentionBounds) -> Retention:
    if fields := {
        name: value for name, value in msgspec.structs.asdict(bounds).items() if value is not UNSET
    }:
        return Retention(**fields)
    raise ValueError("takes age and count")


def quote_value(value: Any) -> str:
    """Returns a wrong value as text for an error message, at most 60 characters long. Returns `***` if the
    value looks like a secret."""
    shown = repr(value)
    return "***" if _SECRET_PATTERN.search(shown) else shown[:_MAX_SHOWN_CHARACTERS]


TEXT = SettingType("text", str)
APPLICATION = SettingType(
    "module:app, such as myproject.jobs:app, or the name of an installed application",
    Annotated[str, Meta(pattern=r"^([^\W\d][\w.]*:[^\W\d][\w.]*|[\w-]+)$")],
)
_Mailbox = Annotated[str, Meta(pattern=r"^[^\s@:/=;,<>]+@[\w.-]+$")]
_HostOrNetwork = Annotated[str, Meta(pattern=r"^[\w.:-]+(/\d{1,3})?$")]
MAILBOX_OR_NONE = SettingType("an e-mail address", _Mailbox | None)
MAILBOXES = SettingType(
    "e-mail addresses", tuple[_Mailbox, ...], _parse_list, "a@b.example,c@d.example", '["a@b.example"]'
)
MAIL_SERVER = SettingType(
    "smtp://, smtp+starttls:// or smtps:// and a host, with user:password@ before it if need be",
    Annotated[str, Meta(pattern=r"^smtp(s|\+starttls)?://\S+$")] | None,
)
WEBHOOK_URL = SettingType(
    "an address that begins with https://", Annotated[str, Meta(pattern=r"^https?://\S+$")] | None
)
WEBHOOK_SECRET = SettingType(
    "letters, digits, - and _", Annotated[str, Meta(pattern=r"^[\w-]{8,200}$")] | None
)
HOSTS = SettingType(
    "names of hosts and networks",
    tuple[_HostOrNetwork, ...],
    _parse_list,
    "10.0.0.0/8,hooks.internal",
    '["10.0.0.0/8", "hooks.internal"]',
)
NAMES = SettingType(
    "names",
    tuple[Annotated[str, Meta(pattern=r"^[\w .-]+$")], ...],
    _parse_list,
    "iban,card_number",
    '["iban", "card_number"]',
)
WEB_ADDRESS = SettingType(
    "an address that begins with https:// or http://",
    Annotated[str, Meta(pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$")] | None,
)
RULES = AlertRulesType(
    "rules of alerts by name, each with what it is on and numbers that fit",
    dict,
    str,
    '{"feeds": {"on": "queue_length", "above": 1000}}',
    '[alerts.rules.feeds] on = "queue_length", above = 1000',
)
COUNT = SettingType("a whole number of 1 or more", _Count)
COUNT_OR_NONE = SettingType("a whole number of 1 or more", _Count | None)
HOST = SettingType("a name or an address, such as 0.0.0.0", Annotated[str, Meta(pattern=r"^[\w.:-]+$")])
PORT = SettingType("a port from 0 to 65535, 0 for any that is free", Annotated[int, Meta(ge=0, le=65535)])
SECONDS = SettingType("a number of seconds above 0", _Seconds)
SECONDS_OR_NONE = SettingType("a number of seconds above 0", _Seconds | None)
SECONDS_OR_ZERO = SettingType("a number of seconds, 0 or more", Annotated[float, Meta(ge=0, le=_MAX_SECONDS)])
SWITCH = SettingType("true or false", bool)
WEIGHTS = WeightsType(
    "names of queues with or without a weight",
    _Weights,
    _parse_pairs,
    "feeds=5,mail",
    '{ feeds = 5, mail = 1 } or ["feeds", "mail"]',
)
RETENTION = RetentionType(
    "an age in seconds, a count or both",
    _RetentionBounds,
    _parse_pairs,
    "age=86400,count=1000",
    "{ age = 86400, count = 1000 }",
)
FORMAT = ChoiceType("auto, json or console", Literal["auto", "json", "console"])
LEVEL = ChoiceType("debug, info, warning or error", Literal["debug", "info", "warning", "error"])
