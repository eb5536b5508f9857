"""Reading a model's answer about a batch of songs, strictly: what is kept was asked for and has its form.

Two kinds of wrong. An answer in which no entry can be found says nothing about any song and is `Unreadable`.
It is paid for, so entries are also found in a bare list, between other text, or before the place where the
answer was cut off. In a readable answer every entry stands for itself: a malformed one is its own song's
problem, and so is one that is missing. An entry nobody asked for is nobody's, and is told.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, field

QUIETEST, LOUDEST = 1, 10
MAX_FAILED_PARSES = 100
_DECODER = json.JSONDecoder()


class Unreadable(ValueError):
    """The whole answer is of no use. Its sentence says why."""


class Anchor(Struct, frozen=True):
    acoustic_model: str | None = None
    semantic_push: str | None = None


class Tags(Struct, frozen=True):
    mood_coord: list[str]
    objects: list[str]
    energy: Annotated[int, Meta(ge=QUIETEST, le=LOUDEST)]
    scene_tag: str | None = None
    spectrum: str | None = None


class Analysis(Struct, frozen=True):
    """What the model says of one song."""

    id: str
    vector_anchor: Anchor
    embedding_tags: Tags
    is_instrumental: bool


class Answer(Struct, frozen=True):
    """`problems` has every song asked about that is not in `analyses`, and why. `strangers` are ids that
    nobody asked about."""

    analyses: dict[str, Analysis]
    problems: dict[str, str] = field(default_factory=dict)
    strangers: tuple[str, ...] = ()


class _Document(Struct):
    songs: list[msgspec.Raw]


class _Named(Struct):
    id: str


LEFT_OUT = "the answer leaves it out"
TWICE = "the answer has it more than once"


def read_answer(text: str, asked: Sequence[str]) -> Answer:
    entries = _entries(text)
    named = [(_id_of(entry), entry) for entry in entries]
    times = Counter(id_ for id_, _ in named if id_ is not None)
    wanted = frozenset(asked)
    analyses: dict[str, Analysis] = {}
    problems: dict[str, str] = {}
    for id_, entry in named:
        if id_ is None or id_ not in wanted:
            continue
        if times[id_] > 1:  # which of them is meant, nobody can say
            problems[id_] = TWICE
            continue
        try:
            analyses[id_] = _analysis(entry)
        except msgspec.DecodeError as error:
            problems[id_] = f"its entry in the answer is malformed: {error}"
    for id_ in asked:
        if id_ not in analyses:
            problems.setdefault(id_, LEFT_OUT)
    return Answer(analyses, problems, _strangers(times, wanted))


def _entries(text: str) -> list[msgspec.Raw]:
    try:
        return msgspec.json.decode(text, type=_Document).songs
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        if found := _entries_in(text):
            return found
        known_form = isinstance(error, msgspec.ValidationError)
        problem = "it is not of the form that was asked for" if known_form else "it is not JSON"
        raise Unreadable(f"{problem}: {error}") from None


def _entries_in(text: str) -> list[msgspec.Raw]:
    """Every whole JSON object with an `id`, wherever it stands in the text, and none inside of another. A
    failed attempt may read the rest of the text, so there are at most `MAX_FAILED_PARSES`."""
    found: list[msgspec.Raw] = []
    failed, at = 0, text.find("{")
    while at >= 0 and failed < MAX_FAILED_PARSES:
        try:
            value, end = _DECODER.raw_decode(text, at)
            is_entry = "id" in value
        except (ValueError, RecursionError):
            failed, is_entry = failed + 1, False
        if is_entry:
            found.append(msgspec.Raw(text[at:end].encode(errors="replace")))
        at = text.find("{", end if is_entry else at + 1)
    return found


def _id_of(entry: msgspec.Raw) -> str | None:
    try:
        return msgspec.json.decode(entry, type=_Named).id
    except msgspec.DecodeError:
        return None


def _analysis(entry: msgspec.Raw) -> Analysis:
    analysis = msgspec.json.decode(entry, type=Analysis)
    anchor = analysis.vector_anchor
    if not (anchor.acoustic_model or "").strip() and not (anchor.semantic_push or "").strip():
        raise msgspec.ValidationError("nothing is said of how it sounds nor of what it brings to mind")
    return analysis


def _strangers(times: Iterable[str], wanted: frozenset[str]) -> tuple[str, ...]:
    return tuple(id_ for id_ in times if id_ not in wanted)
