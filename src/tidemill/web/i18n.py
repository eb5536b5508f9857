"""Translations of the dashboard: loads the locale files and chooses the language of a request."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from starlette.requests import Request

LANGUAGES: Mapping[str, str] = {"en": "English", "zh": "中文"}
"""Each language by its native name. The first is the default."""
LOCALES_FOLDER = Path(__file__).parent / "locales"

Translation = str | Mapping[str, str]
"""A sentence with {names} in it, or its plural forms `one` and `other`, chosen by `count`."""


class Translator:
    """Returns the text for a key in one language: `translate("jobs.select_all", count=3)`. The keyword
    arguments are inserted into the text, and `count` chooses the plural form."""

    def __init__(self, language: str, entries: Mapping[str, Translation]) -> None:
        self.language, self._entries = language, entries

    def __call__(self, key: str, /, **values: Any) -> str:
        entry = self._entries[key]
        if not isinstance(entry, str):
            is_singular = values.get("count") == 1
            entry = entry["one"] if is_singular and "one" in entry else entry["other"]
        return (
            entry.format(**{name: _format_value(value) for name, value in values.items()})
            if values
            else entry
        )

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def duration(self, seconds: float) -> str:
        """Returns a duration as text with its two largest units, such as `1 h 30 min`.
        `tidemill.inspect.formatting` does the same in English."""
        if seconds < 1:
            return f"{max(seconds, 0.0):.1f} {self('unit.second')}"
        left, parts = int(seconds), []
        for size, unit in _DURATION_UNITS:
            parts.append(f"{left // size} {self(f'unit.{unit}')}" if left >= size else "")
            left %= size
        first = next(index for index, part in enumerate(parts) if part)
        return " ".join(part for part in parts[first : first + 2] if part)


_DURATION_UNITS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


@cache
def translator(language: str) -> Translator:
    return Translator(language, load_locale(language))


def load_locale(language: str) -> dict[str, Translation]:
    with (LOCALES_FOLDER / f"{language}.toml").open("rb") as file:
        return dict(_flatten(tomllib.load(file)))


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Translation]]:
    for name, value in table.items():
        if isinstance(value, str) or "other" in value:
            yield f"{prefix}{name}", value
        else:
            yield from _flatten(value, f"{prefix}{name}.")


def _format_value(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


LANGUAGE_COOKIE = "tidemill-language"


def request_language(request: Request) -> str:
    """Returns the language that the user chose, which a cookie stores. Without the cookie, returns the
    supported language that the browser prefers, or else the default language."""
    chosen = request.cookies.get(LANGUAGE_COOKIE, "")
    if chosen in LANGUAGES:
        return chosen
    accepted = sorted(
        _parse_accept_language(request.headers.get("accept-language", "")), key=lambda language: -language[1]
    )
    return next((name for name, _ in accepted if name in LANGUAGES), next(iter(LANGUAGES)))


def _parse_accept_language(header: str) -> list[tuple[str, float]]:
    """Returns the languages in an Accept-Language header with their quality, in the order of the header.
    `zh-CN,en;q=0.8` gives `[("zh", 1.0), ("en", 0.8)]`."""
    languages = []
    for part in header.split(",")[:20]:
        name, _, quality = part.partition(";q=")
        try:
            languages.append((name.strip().partition("-")[0].lower(), float(quality or 1)))
        except ValueError:
            continue
    return languages
