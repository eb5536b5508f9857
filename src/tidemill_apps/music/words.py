"""What the pages say, in the languages of the dashboard."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "languages"


class Words:
    """`words("notice.started")`; what stands in braces is filled in."""

    def __init__(self, sentences: Mapping[str, Mapping[str, str]]) -> None:
        self._sentences = sentences

    def __call__(self, key: str, /, **values: Any) -> str:
        part, _, name = key.partition(".")
        return self._sentences[part][name].format(**values)


@cache
def words(language: str) -> Words:
    """English where there is no other."""
    file = FOLDER / f"{language}.toml"
    return Words(tomllib.loads((file if file.exists() else FOLDER / "en.toml").read_text(encoding="utf-8")))
