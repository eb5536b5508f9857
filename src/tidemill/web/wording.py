"""What pages say, in the languages there are: one catalogue each, looked up by key."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

LANGUAGES: Mapping[str, str] = {"en": "English", "zh": "中文"}
"""By the name each has for itself. The first is for browsers that ask for none of them."""
CATALOGUES = Path(__file__).parent / "words"

Entry = str | Mapping[str, str]
"""A sentence with {names} in it, or its forms by the number `count`: `one` and `other`."""


class Words:
    """`words("jobs.meant", count=3)`. A key that is not there is a defect: every one is held by a test."""

    def __init__(self, language: str, entries: Mapping[str, Entry]) -> None:
        self.language, self._entries = language, entries

    def __call__(self, key: str, /, **values: Any) -> str:
        entry = self._entries[key]
        if not isinstance(entry, str):
            one = values.get("count") == 1
            entry = entry["one"] if one and "one" in entry else entry["other"]
        return entry.format(**{name: _shown(value) for name, value in values.items()}) if values else entry

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def duration(self, seconds: float) -> str:
        """The two largest units, as `tidemill.inspect.words` says them in English."""
        if seconds < 1:
            return f"{max(seconds, 0.0):.1f} {self('unit.second')}"
        left, parts = int(seconds), []
        for size, unit in _UNITS:
            parts.append(f"{left // size} {self(f'unit.{unit}')}" if left >= size else "")
            left %= size
        first = next(index for index, part in enumerate(parts) if part)
        return " ".join(part for part in parts[first : first + 2] if part)


_UNITS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


@cache
def words(language: str) -> Words:
    return Words(language, catalogue(language))


def catalogue(language: str) -> dict[str, Entry]:
    with (CATALOGUES / f"{language}.toml").open("rb") as file:
        return dict(_flat(tomllib.load(file)))


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Entry]]:
    for name, value in table.items():
        if isinstance(value, str) or "other" in value:
            yield f"{prefix}{name}", value
        else:
            yield from _flat(value, f"{prefix}{name}.")


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
