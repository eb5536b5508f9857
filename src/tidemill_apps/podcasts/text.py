"""The script of an episode: the sections of a text, and the parts that a speech service speaks."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tidemill_apps.common.sentences import (
    LengthFunction,
    TextFormat,
    clean_text,
    detect_language,
    is_speakable,
    join_sentences,
    read_blocks,
    split_long_sentences,
    split_sentences,
)


class ScriptSection(msgspec.Struct, frozen=True):
    """A chapter of an episode. The first sentence is its spoken heading, if the text has one."""

    title: str
    sentences: tuple[str, ...]


class ScriptPart(msgspec.Struct, frozen=True):
    """The text of one call. `section` is the number of its section."""

    section: int
    sentences: tuple[str, ...]

    @property
    def text(self) -> str:
        return join_sentences(self.sentences)


def read_sections(text: str, format_: TextFormat, title: str) -> list[ScriptSection]:
    """Returns the sections of a text. A text without headings is one section, named by `title`. Sections
    without anything to speak are left out."""
    sections: list[tuple[str, list[str]]] = [(title, [])]
    for is_heading, block in read_blocks(text, format_):
        spoken = clean_text(block)
        if not is_speakable(spoken):
            continue
        if is_heading:
            sections.append((spoken, [_end_sentence(spoken)]))
        else:
            sections[-1][1].extend(split_sentences(spoken))
    return [ScriptSection(name, tuple(found)) for name, found in sections if found]


def pack_parts(sections: Iterable[ScriptSection], measure: LengthFunction, limit: int) -> list[ScriptPart]:
    """Packs sentences into parts of at most `limit` units. A part never spans two sections. A sentence that
    is too long is split at clauses, then anywhere."""
    parts: list[ScriptPart] = []
    for number, section in enumerate(sections):
        packed: list[str] = []
        for piece in split_long_sentences(section.sentences, measure, limit):
            if packed and measure(join_sentences((*packed, piece))) > limit:
                parts.append(ScriptPart(number, tuple(packed)))
                packed = []
            packed.append(piece)
        parts.append(ScriptPart(number, tuple(packed)))
    return parts


def _end_sentence(heading: str) -> str:
    if heading[-1] in ".!?。！？":  # noqa: RUF001 - as above
        return heading
    return heading + ("。" if detect_language(heading) == "zh" else ".")
