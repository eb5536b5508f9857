"""Markdown as plain text: what a reader reads, without what a browser is told.

Front matter, images' addresses, links' targets and HTML tags are left out. A link stays as its text, an image
as its description, a table as its rows, and code as it is: people look for the names in it."""

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
"""A list is two levels, a quote one. Deeper blocks are read as plain paragraphs, with their markers."""
_FRONT_MATTER = re.compile(
    r"\A\ufeff?---[ \t]*\r?\n(?=[^\s:][^:\n]*:\s|---|\.\.\.)"
    r".*?^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)",
    re.DOTALL | re.MULTILINE,
)
"""It begins with a key. Text between two rules is text."""
_FOOTNOTE = re.compile(r"^ {0,3}\[\^[^\]\s]+\]:", re.MULTILINE)
"""Taken for the target of a link, its text would be lost."""
_SPACES = re.compile(r"[^\S\n]+")
_BREAKS = re.compile(r"(?<!\s)\s*\n\s*")  # from where the space begins: else each of its places is tried
_OPENING = re.compile(r"<(?:!--|(?P<hides>script|style)\b|[a-z/!?])", re.IGNORECASE)
_END_OF_TAG, _END_OF_COMMENT = re.compile(">"), re.compile("-->")
_ALT = re.compile(r"""\balt\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE)
_WIDE = r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]"
_BROKEN_LINE = re.compile(rf"(?<={_WIDE})\n(?={_WIDE})")


class Cleaned(msgspec.Struct, frozen=True):
    """Paragraphs with an empty line between them. `headings` are the places where one begins."""

    text: str
    headings: frozenset[int] = frozenset()


class _Block(msgspec.Struct, frozen=True):
    text: str
    heading: bool = False


def cleaned(markdown: str) -> Cleaned:
    text, headings = "", []
    body = _FOOTNOTE.sub("", _FRONT_MATTER.sub("", markdown, count=1))
    for block in _blocks(_parser().parse(body)):
        if not block.text:
            continue
        text += "\n\n" if text else ""
        if block.heading:
            headings.append(len(text))
        text += block.text
    return Cleaned(text, frozenset(headings))


@cache
def _parser() -> MarkdownIt:
    """The parser drops the rest of the document at `maxNesting`. `_deep_paragraph` reads it before that: no
    block opens more than two levels at once."""
    made = MarkdownIt("commonmark", {"maxNesting": MAX_NESTING + 2}).enable(["table", "strikethrough"])
    made.block.ruler.before("table", "deep_paragraph", _deep_paragraph)
    return made


def _deep_paragraph(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Lines up to an empty one, or to one that is outside of the innermost list or quote."""
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


def _blocks(tokens: Iterable[Token]) -> Iterator[_Block]:
    heading, cells = False, []
    for token in tokens:
        match token.type:
            case "heading_open":
                heading = True
            case "inline" if heading:
                yield _Block(_inline(token).replace("\n", " "), heading=True)
                heading = False
            case "tr_open":
                cells = [""]
            case "inline" if cells:
                cells.append(_inline(token))
            case "tr_close":
                yield _Block(" | ".join(filter(None, cells)))
                cells = []
            case "inline":
                yield _Block(_inline(token))
            case "fence" | "code_block":
                yield _Block(_BREAKS.sub("\n", token.content).strip())
            case "html_block":
                yield _Block(_tidy(_without_tags(token.content)))
            case _:
                pass


def _inline(token: Token) -> str:
    return _tidy("".join(_words(token.children or ())))


def _words(tokens: Iterable[Token]) -> Iterator[str]:
    hidden = 0  # inside <script> and the like
    for token in tokens:
        if token.type == "html_inline":
            hidden = max(0, hidden + _hides(token.content))
        elif hidden:
            continue
        elif token.type in ("softbreak", "hardbreak"):
            yield "\n"
        elif token.type == "image":
            yield "".join(_words(token.children or ()))
        else:
            yield token.content


def _hides(tag: str) -> int:
    found = re.match(r"<(/?)(script|style)\b", tag, re.IGNORECASE)
    return 0 if found is None else (-1 if found[1] else 1)


def _tidy(text: str) -> str:
    """One paragraph: a line that was broken between Chinese characters had no space there."""
    lines = _BREAKS.sub("\n", _SPACES.sub(" ", text)).strip()
    return _BROKEN_LINE.sub("", lines).replace("\n", " ")


def _without_tags(text: str) -> str:
    """Each character is looked at once. `html.parser` begins again at every tag that does not end, and takes
    minutes for a text of such."""
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
