"""Splits texts, also Chinese ones, into headings, paragraphs and sentences."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from html import unescape
from typing import Literal

from markdown_it import MarkdownIt
from markdown_it.token import Token

Language = Literal["en", "zh"]
LengthFunction = Callable[[str], int]
"""Returns the length of a text in the unit of a speech service: characters or bytes."""

_CHINESE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_UNSPOKEN = re.compile(
    r"[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\ufeff\ufffe\uffff]"
)
_URL_PATTERN = re.compile(r"https?://\S+")
_SENTENCE_END = re.compile(
    r"(?<=[。！？；…])[”’」』）]*|(?<=[.!?;])[\"'”’)\]]*(?=\s)|\n+"  # noqa: RUF001 - as they are written
)
_CLAUSE_END = re.compile(r"(?<=[，、：,:])")  # noqa: RUF001 - as above
_CLOSING_MARKS = "。！？；…，、：”’」』）"  # noqa: RUF001 - as above
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
    lines = _UNSPOKEN.sub("", _URL_PATTERN.sub("", normal)).split("\n")
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
        text += sentence if not text or text[-1] in _CLOSING_MARKS else f" {sentence}"
    return text


def split_long_sentences(sentences: Iterable[str], measure: LengthFunction, limit: int) -> Iterator[str]:
    for sentence in sentences:
        if measure(sentence) <= limit:
            yield sentence
            continue
        for clause in filter(is_speakable, map(str.strip, _CLAUSE_END.split(sentence))):
            yield from [clause] if measure(clause) <= limit else _cut(clause, measure, limit)


def _cut(text: str, measure: LengthFunction, limit: int) -> Iterator[str]:
    """Yields pieces of at most `limit` units, cut at a space if there is one and never inside a character."""
    while measure(text) > limit:
        end = next(end for end in range(min(len(text), limit), 0, -1) if measure(text[:end]) <= limit)
        space = text.rfind(" ", 0, end)
        end = space if space > 0 else end
        yield text[:end].strip()
        text = text[end:].strip()
    if is_speakable(text):
        yield text


TextFormat = Literal["plain", "markdown", "html"]
_HTML_SILENT = re.compile(r"<!--.*?-->|<(script|style|template|svg)\b.*?</\1\s*>", re.DOTALL | re.IGNORECASE)
_HTML_HEADING = re.compile(r"<h[1-3]\b[^>]*>(.*?)</h[1-3]\s*>", re.DOTALL | re.IGNORECASE)
_HTML_BREAK = re.compile(
    r"</?(?:p|div|li|br|tr|blockquote|pre|section|article|h[1-6])\b[^>]*>", re.IGNORECASE
)
_HTML_TAG = re.compile(r"<[^>]*>")
Blocks = Iterable[tuple[bool, str]]
"""Pairs: True for a heading, and the text of a block."""


def read_plain_blocks(text: str) -> Blocks:
    return [(False, text)]


def read_markdown_blocks(text: str) -> Blocks:
    """Yields headings and paragraphs. Code blocks and HTML are left out."""
    heading = False
    for token in MarkdownIt("commonmark").parse(text):
        if token.type in ("heading_open", "heading_close"):
            heading = token.type == "heading_open"
        elif token.type == "inline":
            yield heading, "".join(map(_inline_text, token.children or ()))


def _inline_text(token: Token) -> str:
    if token.type in ("softbreak", "hardbreak"):
        return "\n" if token.type == "hardbreak" else " "
    return token.content if token.type in ("text", "code_inline", "image") else ""


def read_html_blocks(text: str) -> Blocks:
    """Yields headings and text blocks of HTML, without tags. Scripts and styles are left out."""
    shown = _HTML_SILENT.sub(" ", text)
    for number, block in enumerate(_HTML_HEADING.split(shown)):
        lines = _HTML_BREAK.sub("\n\n", " ".join(block.split()))
        yield number % 2 == 1, unescape(_HTML_TAG.sub("", lines))


def read_blocks(text: str, format_: TextFormat) -> Blocks:
    readers = {"plain": read_plain_blocks, "markdown": read_markdown_blocks, "html": read_html_blocks}
    return readers[format_](text)
