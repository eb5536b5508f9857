"""The kinds of values a setting may have, and how each is written as text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tidemill.core.queues import Retention


class Kind(msgspec.Struct, frozen=True):
    """`wanted` ends the sentence "must be …", with an example of how it is written where that differs.
    `from_text` turns a variable's text into what a file would say."""

    wanted: str
    type: Any
    from_text: Callable[[str], Any] = str
    text_example: str = ""
    toml_example: str = ""

    @property
    def as_text(self) -> str:
        return self.wanted + (f", such as {self.text_example}" if self.text_example else "")

    @property
    def in_toml(self) -> str:
        return self.wanted + (f", such as {self.toml_example}" if self.toml_example else "")

    def read(self, value: Any) -> Any:
        """A value of a file. Raises ValueError."""
        return msgspec.convert(value, self.type)

    def read_text(self, text: str) -> Any:
        """The text of a variable. Raises ValueError."""
        return msgspec.convert(self.from_text(text.strip()), self.type, strict=False)


def _parts(text: str) -> dict[str, str | None]:
    """`feeds=5,mail` → {"feeds": "5", "mail": None}"""
    if "://" in text:  # a URL in the wrong variable; as a name it would be shown and stored
        raise ValueError("is a URL")
    found: dict[str, str | None] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, value = (side.strip() for side in part.partition("="))
        found[name] = value if equals else None
    return found


_SHOWN = 60  # characters of a wrong value
_SECRET = re.compile(r"(?i)://|@|passw|pwd|secret|token")
_LONGEST = 1e10  # seconds; infinity is none
_Count = Annotated[int, Meta(ge=1)]
_Seconds = Annotated[float, Meta(gt=0, le=_LONGEST)]
_Weights = Annotated[dict[Annotated[str, Meta(min_length=1)], _Count | None], Meta(min_length=1)]


class Weights(Kind, frozen=True):
    def read(self, value: Any) -> Any:
        """A file may list names alone: each has its declared weight."""
        if isinstance(value, list):
            value = dict.fromkeys(msgspec.convert(value, list[str]))
        return super().read(value)


class _Bounds(msgspec.Struct, forbid_unknown_fields=True):
    """As they may be given: a bound that is mistyped or empty would be none, and keep everything."""

    age: Annotated[float, Meta(ge=0, le=_LONGEST)] | UnsetType = UNSET
    count: Annotated[int, Meta(ge=0)] | UnsetType = UNSET


class Kept(Kind, frozen=True):
    def read(self, value: Any) -> Any:
        return _retention(super().read(value))

    def read_text(self, text: str) -> Any:
        return _retention(super().read_text(text))


class Word(Kind, frozen=True):
    """INFO is info."""

    def read(self, value: Any) -> Any:
        return super().read(value.lower() if isinstance(value, str) else value)

    def read_text(self, text: str) -> Any:
        return self.read(text.strip())


class Rules(Kind, frozen=True):
    """Rules of alerts by name, each a table; in a variable they are JSON."""

    def read(self, value: Any) -> Any:
        from tidemill.telling.alerts.rule import Rule  # most programs have none

        rules = msgspec.convert(value, dict[Annotated[str, Meta(min_length=1, max_length=100)], Rule])
        for name, rule in rules.items():
            if problem := rule.problem():
                raise ValueError(f"{name}: {problem}")
        return rules

    def read_text(self, text: str) -> Any:
        return self.read(msgspec.json.decode(text))


def _listed(text: str) -> list[str]:
    return [part for piece in text.split(",") if (part := piece.strip())]


def _retention(bounds: _Bounds) -> Retention:
    if given := {name: value for name, value in msgspec.structs.asdict(bounds).items() if value is not UNSET}:
        return Retention(**given)
    raise ValueError("takes age and count")


def quoted(value: Any) -> str:
    """A wrong value as it may be shown: a secret may have got into the wrong setting."""
    shown = repr(value)
    return "***" if _SECRET.search(shown) else shown[:_SHOWN]


TEXT = Kind("text", str)
APPLICATION = Kind(
    "module:app, such as myproject.jobs:app, or the name of an installed application",
    Annotated[str, Meta(pattern=r"^([^\W\d][\w.]*:[^\W\d][\w.]*|[\w-]+)$")],
)
_Mailbox = Annotated[str, Meta(pattern=r"^[^\s@:/=;,<>]+@[\w.-]+$")]
_Place = Annotated[str, Meta(pattern=r"^[\w.:-]+(/\d{1,3})?$")]
MAILBOX_OR_NONE = Kind("an e-mail address", _Mailbox | None)
MAILBOXES = Kind(
    "e-mail addresses", tuple[_Mailbox, ...], _listed, "a@b.example,c@d.example", '["a@b.example"]'
)
MAIL_SERVER = Kind(
    "smtp://, smtp+starttls:// or smtps:// and a host, with user:password@ before it if need be",
    Annotated[str, Meta(pattern=r"^smtp(s|\+starttls)?://\S+$")] | None,
)
HOOK = Kind("an address that begins with https://", Annotated[str, Meta(pattern=r"^https?://\S+$")] | None)
HOOK_SECRET = Kind("letters, digits, - and _", Annotated[str, Meta(pattern=r"^[\w-]{8,200}$")] | None)
HOSTS = Kind(
    "names of hosts and networks",
    tuple[_Place, ...],
    _listed,
    "10.0.0.0/8,hooks.internal",
    '["10.0.0.0/8", "hooks.internal"]',
)
NAMES = Kind(
    "names",
    tuple[Annotated[str, Meta(pattern=r"^[\w .-]+$")], ...],
    _listed,
    "iban,card_number",
    '["iban", "card_number"]',
)
WEB_ADDRESS = Kind(
    "an address that begins with https:// or http://",
    Annotated[str, Meta(pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$")] | None,
)
RULES = Rules(
    "rules of alerts by name, each with what it is on and numbers that fit",
    dict,
    str,
    '{"feeds": {"on": "queue_length", "above": 1000}}',
    '[alerts.rules.feeds] on = "queue_length", above = 1000',
)
COUNT = Kind("a whole number of 1 or more", _Count)
COUNT_OR_NONE = Kind("a whole number of 1 or more", _Count | None)
HOST = Kind("a name or an address, such as 0.0.0.0", Annotated[str, Meta(pattern=r"^[\w.:-]+$")])
PORT = Kind("a port from 0 to 65535, 0 for any that is free", Annotated[int, Meta(ge=0, le=65535)])
SECONDS = Kind("a number of seconds above 0", _Seconds)
SECONDS_OR_NONE = Kind("a number of seconds above 0", _Seconds | None)
SECONDS_OR_ZERO = Kind("a number of seconds, 0 or more", Annotated[float, Meta(ge=0, le=_LONGEST)])
SWITCH = Kind("true or false", bool)
WEIGHTS = Weights(
    "names of queues with or without a weight",
    _Weights,
    _parts,
    "feeds=5,mail",
    '{ feeds = 5, mail = 1 } or ["feeds", "mail"]',
)
RETENTION = Kept(
    "an age in seconds, a count or both",
    _Bounds,
    _parts,
    "age=86400,count=1000",
    "{ age = 86400, count = 1000 }",
)
FORMAT = Word("auto, json or console", Literal["auto", "json", "console"])
LEVEL = Word("debug, info, warning or error", Literal["debug", "info", "warning", "error"])
