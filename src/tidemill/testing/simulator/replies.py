"""The replies of the simulated model: texts, vectors, and faulty replies."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Any

import msgspec

from tidemill.testing.simulator.http_messages import SimulatorCall

ReplyFunction = Callable[[SimulatorCall], str]
"""A function from a call to the model's text. `call.texts` are the texts of the question in order, the
system prompt first."""

DEFAULT_DIMENSIONS = 8
MAX_DIMENSIONS = 4096
WORD_PREFIX_LENGTH = 4
"""Letters that identify a word: `tide` and `tides` are the same. Shorter words (the, of) have a low weight.
"""
SHORT_WORD_WEIGHT = 0.1
_WORD_PATTERN = re.compile(r"[^\W_]+")
_CHINESE_PATTERN = re.compile(r"[\u3400-\u9fff]+")


class ReplyContent(msgspec.Struct, frozen=True):
    """The content of a reply. `vectors` has pairs of the index of a text and its vector. `finish` is the
    reason why the model stopped. `audio` is a WAV file."""

    text: str = ""
    vectors: tuple[tuple[int, list[float] | None], ...] = ()
    finish: str = "stop"
    audio: bytes = b""


def default_reply(call: SimulatorCall) -> str:
    """Returns a made-up sentence, always the same for the same question."""
    return f"Simulated answer {hashlib.sha256(' '.join(call.texts).encode()).hexdigest()[:8]}."


def embed_text(text: str, dimensions: int = 0) -> list[float]:
    """Returns a vector of norm 1 with `dimensions` numbers (0: 8 numbers). Equal texts have equal vectors,
    and texts with common words have similar vectors."""
    size = min(dimensions or DEFAULT_DIMENSIONS, MAX_DIMENSIONS)
    found = [0.0] * size
    for feature, weight in _count_features(text.lower()).items():
        drawn = _hash_feature(feature)
        found[drawn % size] += weight if drawn >> 63 else -weight
    length = math.sqrt(sum(value * value for value in found))
    if not length:  # the text has no words, or all of them cancel out
        found[_hash_feature(text) % size] = length = 1.0
    return [round(value / length, 6) for value in found]


def _count_features(text: str) -> dict[str, float]:
    """Returns a weight for each word of the text; words with the same first letters count as one word. In
    Chinese each character and each pair of adjacent characters is a word."""
    found = Counter[str]()
    for run, times in Counter(_WORD_PATTERN.findall(text)).items():
        for chinese in _CHINESE_PATTERN.findall(run):
            found.update(chinese)
            found.update(map("".join, pairwise(chinese)))
        for word in filter(None, _CHINESE_PATTERN.split(run)):
            found[word[:WORD_PREFIX_LENGTH]] += times
    return {feature: _word_weight(feature) * (1 + math.log(times)) for feature, times in found.items()}


def _word_weight(word: str) -> float:
    return SHORT_WORD_WEIGHT if len(word) < WORD_PREFIX_LENGTH and word.isascii() else 1.0


@lru_cache(maxsize=65_536)
def _hash_feature(feature: str) -> int:
    return int.from_bytes(hashlib.blake2b(feature.encode(), digest_size=8).digest())


class ReplyFaults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects the replies that are wrong. Each field has the numbers of replies, counted from 1, separately
    for chat and embeddings.

    - `malformed`: the chat text stops in the middle, with the normal finish reason.
    - `cut_off`: the chat text stops in the middle, with the finish reason "length".
    - `blocked`: the chat reply has no text.
    - `left_out`, `repeated`: a list in the chat reply lacks its last item, or repeats its first item.
    - `invented`: a list in the chat reply has an additional item with an unknown id.
    - `missing_vector`, `null_vector`: the first vector is missing, or is null.
    - `reordered`: the vectors are in reverse order.
    """

    malformed: frozenset[int] = frozenset()
    cut_off: frozenset[int] = frozenset()
    blocked: frozenset[int] = frozenset()
    left_out: frozenset[int] = frozenset()
    repeated: frozenset[int] = frozenset()
    invented: frozenset[int] = frozenset()
    missing_vector: frozenset[int] = frozenset()
    null_vector: frozenset[int] = frozenset()
    reordered: frozenset[int] = frozenset()

    def chat_content(self, number: int, text: str) -> ReplyContent:
        if number in self.blocked:
            return ReplyContent(finish="blocked")
        if number in self.left_out | self.repeated | self.invented:
            text = self._with_other_items(number, text)
        if number in self.malformed | self.cut_off:
            text = text[: len(text) // 2]
        return ReplyContent(text=text, finish="length" if number in self.cut_off else "stop")

    def vector_content(self, number: int, vectors: list[list[float]]) -> ReplyContent:
        found: list[tuple[int, list[float] | None]] = list(enumerate(vectors))
        if number in self.missing_vector:
            del found[0]
        elif number in self.null_vector:
            found[0] = (0, None)
        if number in self.reordered:
            found.reverse()
        return ReplyContent(vectors=tuple(found))

    def _with_other_items(self, number: int, text: str) -> str:
        answer = msgspec.json.decode(text)
        items = _find_items(answer)
        if number in self.repeated:
            items.append(items[0])
        if number in self.invented:
            name = "id" if "id" in items[0] else next(iter(items[0]))
            items.append(items[0] | {name: f"invented-{number}"})
        if number in self.left_out:
            items.pop()
        return msgspec.json.encode(answer).decode()


def _find_items(answer: Any) -> list[Any]:
    """Returns the decoded reply if it is a list, otherwise the first list in it that is not empty. Raises
    ValueError if there is none, or if its first item is not an object."""
    inside = answer.values() if isinstance(answer, dict) else (answer,)
    found = next((value for value in inside if isinstance(value, list) and value), None)
    if found is None or not isinstance(found[0], dict):
        raise ValueError("faults: this answer has no list of items to leave one out of, or to add one to")
    return found
