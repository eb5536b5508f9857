"""What the API and the pages say to people, in the languages there are: `words.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Protocol

FIRST = "en"


class Say(Protocol):
    def __call__(self, key: str, /, **values: object) -> str: ...


def said(language: str, key: str, /, **values: object) -> str:
    """In English where there are no words of that language."""
    found = catalogue()[key]
    text = found.get(language, found[FIRST])
    return text.format(**values) if values else text


def say_in(language: str) -> Say:
    """For templates."""
    return partial(said, language)


@cache
def catalogue() -> Mapping[str, Mapping[str, str]]:
    return tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
