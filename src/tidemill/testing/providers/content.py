"""What an answer says: the words of a model, and vectors that are near each other when texts are alike."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise

import msgspec

from tidemill.testing.providers.asked import Asked

Replies = Callable[[Asked], str]
"""From what was asked to what the model says. `asked.texts` are the texts of the question in their order: the
system's first, where there is one."""

DIMENSIONS = 8
MOST_DIMENSIONS = 4096
BEGINNING = 4
"""Letters by which a word is known: `tide` and `tides` are one. What is shorter (the, of) hardly counts."""
SHORT = 0.1
_WORDS = re.compile(r"[^\W_]+")
_CHINESE = re.compile(r"[\u3400-\u9fff]+")


class Content(msgspec.Struct, frozen=True):
    """`vectors` are of the texts asked for, by their index; `finish` is why a model stopped."""

    text: str = ""
    vectors: tuple[tuple[int, list[float] | None], ...] = ()
    finish: str = "stop"


def said(asked: Asked) -> str:
    """The same answer to the same question, whoever asks and whenever."""
    return f"Simulated answer {hashlib.sha256(' '.join(asked.texts).encode()).hexdigest()[:8]}."


def vector(text: str, dimensions: int = 0) -> list[float]:
    """Of length 1. The same text has the same vector everywhere, and one with the same words a near one."""
    size = min(dimensions or DIMENSIONS, MOST_DIMENSIONS)
    found = [0.0] * size
    for feature, weight in _features(text.lower()).items():
        drawn = _drawn(feature)
        found[drawn % size] += weight if drawn >> 63 else -weight
    length = math.sqrt(sum(one * one for one in found))
    if not length:  # no word in it, or all of them cancel out
        found[_drawn(text) % size] = length = 1.0
    return [round(one / length, 6) for one in found]


def _features(text: str) -> dict[str, float]:
    """Words by their beginnings. Chinese is written without spaces: its characters, and each two that stand
    together, are its words."""
    found = Counter[str]()
    for run, times in Counter(_WORDS.findall(text)).items():
        for chinese in _CHINESE.findall(run):
            found.update(chinese)
            found.update(map("".join, pairwise(chinese)))
        for word in filter(None, _CHINESE.split(run)):
            found[word[:BEGINNING]] += times
    return {one: _weight(one) * (1 + math.log(times)) for one, times in found.items()}


def _weight(word: str) -> float:
    return SHORT if len(word) < BEGINNING and word.isascii() else 1.0


@lru_cache(maxsize=65_536)
def _drawn(feature: str) -> int:
    return int.from_bytes(hashlib.blake2b(feature.encode(), digest_size=8).digest())
