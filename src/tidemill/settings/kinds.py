"""The kinds of values a setting may have, and how each is written as text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tidemill.core.queues import Retention


class Kind(msgspec.Struct, frozen=True):
    """`wanted` ends the sentence "must be …". `from_text` turns a variable's text into what a
    file would say."""

    wanted: str
    type: Any
    from_text: Callable[[str], Any] = str

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


class Kept(Kind, frozen=True):
    def read(self, value: Any) -> Any:
        return _bounded(value, super().read(value))

    def read_text(self, text: str) -> Any:
        return _bounded(_parts(text), super().read_text(text))


class Word(Kind, frozen=True):
    """INFO is info."""

    def read(self, value: Any) -> Any:
        return super().read(value.lower() if isinstance(value, str) else value)

    def read_text(self, text: str) -> Any:
        return self.read(text.strip())


def _bounded(given: Any, kept: Any) -> Any:
    """A mistyped bound would be no bound at all, and keep everything."""
    if not given or set(given) - set(Retention.__struct_fields__):
        raise ValueError("takes age and count")
    return kept


TEXT = Kind("text", str)
COUNT = Kind("a whole number of 1 or more", _Count)
COUNT_OR_NONE = Kind("a whole number of 1 or more", _Count | None)
SECONDS = Kind("a number of seconds above 0", _Seconds)
SECONDS_OR_NONE = Kind("a number of seconds above 0", _Seconds | None)
SECONDS_OR_ZERO = Kind("a number of seconds, 0 or more", Annotated[float, Meta(ge=0, le=_LONGEST)])
SWITCH = Kind("true or false", bool)
WEIGHTS = Weights("names of queues with or without a weight, such as feeds=5,mail", _Weights, _parts)
RETENTION = Kept("an age in seconds, a count or both, such as age=86400,count=1000", Retention, _parts)
FORMAT = Word("auto, json or console", Literal["auto", "json", "console"])
LEVEL = Word("debug, info, warning or error", Literal["debug", "info", "warning", "error"])
