"""Reading a model's answer about a batch of songs, strictly: what is kept was asked for and has its form.

Two kinds of wrong. An answer that is not the document it should be says nothing about any song and is
`Unreadable`. In one that is, every entry stands for itself: a malformed one is its own song's problem, and so
is one that is missing. An entry nobody asked for is nobody's, and is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, field

QUIETEST, LOUDEST = 1, 10


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
        except msgspec.ValidationError as error:
            problems[id_] = f"its entry in the answer is malformed: {error}"
    for id_ in asked:
        if id_ not in analyses:
            problems.setdefault(id_, LEFT_OUT)
    return Answer(analyses, problems, _strangers(times, wanted))


def _entries(text: str) -> list[msgspec.Raw]:
    """Some models fence their JSON however they are asked; the fence is no part of it."""
    try:
        return msgspec.json.decode(_without_fence(text), type=_Document).songs
    except msgspec.ValidationError as error:
        raise Unreadable(f"it is not of the form that was asked for: {error}") from None
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise Unreadable(f"it is not JSON: {error}") from None


def _without_fence(text: str) -> str:
    lines = text.strip().splitlines()
    if len(lines) > 1 and lines[0].startswith("```") and lines[-1] == "```":
        return "\n".join(lines[1:-1])
    return text


def _id_of(entry: msgspec.Raw) -> str | None:
    try:
        return msgspec.json.decode(entry, type=_Named).id
    except msgspec.ValidationError:
        return None


def _analysis(entry: msgspec.Raw) -> Analysis:
    analysis = msgspec.json.decode(entry, type=Analysis)
    anchor = analysis.vector_anchor
    if not (anchor.acoustic_model or "").strip() and not (anchor.semantic_push or "").strip():
        raise msgspec.ValidationError("nothing is said of how it sounds nor of what it brings to mind")
    return analysis


def _strangers(times: Iterable[str], wanted: frozenset[str]) -> tuple[str, ...]:
    return tuple(id_ for id_ in times if id_ not in wanted)
