"""Sentences of a text, Chinese ones too: clean it, split it, and join it again."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

Language = Literal["en", "zh"]
Measure = Callable[[str], int]
"""Returns the length of a text in the unit of a speech service: characters or bytes."""

_CHINESE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_UNSPOKEN = re.compile(
    r"[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\ufeff\ufffe\uffff]"
)
_ADDRESS = re.compile(r"https?://\S+")
_SENTENCE_END = re.compile(
    r"(?<=[。！？；…])[”’」』）]*|(?<=[.!?;])[\"'”’)\]]*(?=\s)|\n+"  # noqa: RUF001 - as they are written
)
_CLAUSE_END = re.compile(r"(?<=[，、：,:])")  # noqa: RUF001 - as above
_CLOSING = "。！？；…，、：”’」』）"  # noqa: RUF001 - as above
CHINESE_SHARE = 0.2
"""The share of Chinese characters above which a text counts as Chinese."""


def count_chinese(text: str) -> int:
    return len(_CHINESE.findall(text))


def detect_language(text: str) -> Language:
    letters = sum(character.isalnum() for character in text)
    return "zh" if count_chinese(text) > CHINESE_SHARE * max(1, letters) else "en"


def clean_text(text: str) -> str:
    """Returns the text without control characters and web addresses, which no voice can read."""
    normal = unicodedata.normalize("NFC", text.replace("\r\n", "\n").replace("\r", "\n"))
    lines = _UNSPOKEN.sub("", _ADDRESS.sub("", normal)).split("\n")
    return "\n".join(" ".join(line.split()) for line in lines).strip()


def is_speakable(text: str) -> bool:
    return any(character.isalnum() for character in text)


def split_sentences(text: str) -> list[str]:
    """Splits a text after sentence ends, Chinese ones too, and at line breaks."""
    found: list[str] = []
    start = 0
    for match in _SENTENCE_END.finditer(text):
        found.append(text[start : match.end()].strip())
        start = match.end()
    found.append(text[start:].strip())
    return [sentence for sentence in found if is_speakable(sentence)]


def join_sentences(sentences: Iterable[str]) -> str:
    text = ""
    for sentence in sentences:
        text += sentence if not text or text[-1] in _CLOSING else f" {sentence}"
    return text


def split_long_sentences(sentences: Iterable[str], measure: Measure, limit: int) -> Iterator[str]:
    for sentence in sentences:
        if measure(sentence) <= limit:
            yield sentence
            continue
        for clause in filter(is_speakable, map(str.strip, _CLAUSE_END.split(sentence))):
            yield from [clause] if measure(clause) <= limit else _cut(clause, measure, limit)


def _cut(text: str, measure: Measure, limit: int) -> Iterator[str]:
    """Yields pieces of at most `limit` units, cut at a space if there is one and never inside a character."""
    while measure(text) > limit:
        end = next(end for end in range(min(len(text), limit), 0, -1) if measure(text[:end]) <= limit)
        space = text.rfind(" ", 0, end)
        end = space if space > 0 else end
        yield text[:end].strip()
        text = text[end:].strip()
    if is_speakable(text):
        yield text
