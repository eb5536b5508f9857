"""Headings and paragraphs of a text: plain text, Markdown or HTML."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import unescape
from typing import Literal

from markdown_it import MarkdownIt
from markdown_it.token import Token

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
    """Yields headings and paragraphs. Code blocks, tables' rules and HTML are not spoken."""
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
    """Yields headings and blocks of HTML. Tags are removed, scripts and styles with their content."""
    shown = _HTML_SILENT.sub(" ", text)
    for number, block in enumerate(_HTML_HEADING.split(shown)):
        lines = _HTML_BREAK.sub("\n\n", " ".join(block.split()))
        yield number % 2 == 1, unescape(_HTML_TAG.sub("", lines))


def read_blocks(text: str, format_: TextFormat) -> Blocks:
    readers = {"plain": read_plain_blocks, "markdown": read_markdown_blocks, "html": read_html_blocks}
    return readers[format_](text)
