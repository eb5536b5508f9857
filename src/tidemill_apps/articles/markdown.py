"""Converts Markdown to the plain text that is embedded.

It drops front matter, image addresses, link targets and HTML tags. It keeps link texts, image descriptions,
table rows and code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from html import unescape

import msgspec
from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.token import Token

MAX_NESTING = 20
"""A list takes two levels, a quote one. Deeper blocks are read as plain paragraphs, with their markers."""
_FRONT_MATTER = re.compile(
    r"\A\ufeff?---[ \t]*\r?\n(?=[^\s:][^:\n]*:\s|---|\.\.\.)"
    r".*?^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)",
    re.DOTALL | re.MULTILINE,
)
"""Front matter begins with a key; otherwise the text between two rules is content."""
_FOOTNOTE = re.compile(r"^ {0,3}\[\^[^\]\s]+\]:", re.MULTILINE)
"""A footnote looks like a link definition, and the parser would drop its text."""
_SPACES = re.compile(r"[^\S\n]+")
_BREAKS = re.compile(
    r"(?<!\s)\s*\n\s*"
)  # anchored at the first white space, or every position would be tried
_OPENING = re.compile(r"<(?:!--|(?P<hides>script|style)\b|[a-z/!?])", re.IGNORECASE)
_END_OF_TAG, _END_OF_COMMENT = re.compile(">"), re.compile("-->")
_ALT = re.compile(r"""\balt\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE)
_WIDE = r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]"
_BROKEN_LINE = re.compile(rf"(?<={_WIDE})\n(?={_WIDE})")


class PlainText(msgspec.Struct, frozen=True):
    """Paragraphs separated by empty lines. `headings` are the offsets where a heading begins."""

    text: str
    headings: frozenset[int] = frozenset()


class _TextBlock(msgspec.Struct, frozen=True):
    text: str
    heading: bool = False


def clean_markdown(markdown: str) -> PlainText:
    text, headings = "", []
    body = _FOOTNOTE.sub("", _FRONT_MATTER.sub("", markdown, count=1))
    for block in _parse_blocks(_create_parser().parse(body)):
        if not block.text:
            continue
        text += "\n\n" if text else ""
        if block.heading:
            headings.append(len(text))
        text += block.text
    return PlainText(text, frozenset(headings))


@cache
def _create_parser() -> MarkdownIt:
    """Returns the Markdown parser. It reads text that is nested deeper than MAX_NESTING as plain paragraphs,
    instead of dropping it."""
    made = MarkdownIt("commonmark", {"maxNesting": MAX_NESTING + 2}).enable(["table", "strikethrough"])
    made.block.ruler.before("table", "deep_paragraph", _deep_paragraph)
    return made


def _deep_paragraph(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """A rule of the Markdown parser that reads deeply nested lines as one paragraph. Returns False if the
    nesting is less than MAX_NESTING, so that the normal rules apply."""
    if state.level < MAX_NESTING:
        return False
    after = start + 1
    while after < end and not state.isEmpty(after) and not 0 <= state.sCount[after] < state.blkIndent:
        after += 1
    if not silent:
        state.line = after
        token = state.push("inline", "", 0)
        token.content = state.getLines(start, after, state.blkIndent, False).strip()
        token.map, token.children = [start, after], []
    return True


def _parse_blocks(tokens: Iterable[Token]) -> Iterator[_TextBlock]:
    heading, cells = False, []
    for token in tokens:
        match token.type:
            case "heading_open":
                heading = True
            case "inline" if heading:
                yield _TextBlock(_inline_text(token).replace("\n", " "), heading=True)
                heading = False
            case "tr_open":
                cells = [""]
            case "inline" if cells:
                cells.append(_inline_text(token))
            case "tr_close":
                yield _TextBlock(" | ".join(filter(None, cells)))
                cells = []
            case "inline":
                yield _TextBlock(_inline_text(token))
            case "fence" | "code_block":
                yield _TextBlock(_BREAKS.sub("\n", token.content).strip())
            case "html_block":
                yield _TextBlock(_join_lines(_remove_tags(token.content)))
            case _:
                pass


def _inline_text(token: Token) -> str:
    return _join_lines("".join(_inline_texts(token.children or ())))


def _inline_texts(tokens: Iterable[Token]) -> Iterator[str]:
    hidden = 0  # inside <script> and the like
    for token in tokens:
        if token.type == "html_inline":
            hidden = max(0, hidden + _hidden_depth_change(token.content))
        elif hidden:
            continue
        elif token.type in ("softbreak", "hardbreak"):
            yield "\n"
        elif token.type == "image":
            yield "".join(_inline_texts(token.children or ()))
        else:
            yield token.content


def _hidden_depth_change(tag: str) -> int:
    found = re.match(r"<(/?)(script|style)\b", tag, re.IGNORECASE)
    return 0 if found is None else (-1 if found[1] else 1)


def _join_lines(text: str) -> str:
    """Returns the text as one line. A line break becomes a space, or nothing between two Chinese, Japanese or
    Korean characters."""
    lines = _BREAKS.sub("\n", _SPACES.sub(" ", text)).strip()
    return _BROKEN_LINE.sub("", lines).replace("\n", " ")


def _remove_tags(text: str) -> str:
    """Returns the text without HTML tags, scripts and styles. It keeps `alt` texts. It takes linear time;
    `html.parser` takes minutes for a text with many unclosed tags."""
    found, at = [], 0
    while opening := _OPENING.search(text, at):
        found += [text[at : opening.start()], " "]
        at = opening.start()
        end = _END_OF_COMMENT if opening[0] == "<!--" else _END_OF_TAG
        closing = end.search(text, opening.end())
        if closing is None:
            break
        at = closing.end()
        alt = _ALT.search(text, opening.end(), at)
        found += [alt[1] or alt[2] or "", " "] if alt else []
        if name := opening["hides"]:
            shown = re.compile(f"</{name}", re.IGNORECASE).search(text, at)
            at = len(text) if shown is None else shown.start()
    return unescape("".join([*found, text[at:]]))
