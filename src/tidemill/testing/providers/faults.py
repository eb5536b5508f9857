"""Answers that are wrong in the ways of real ones."""

from __future__ import annotations

from typing import Any

import msgspec

from tidemill.testing.providers.content import Content


class Faults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which answers, counted from 1 among those of chat or of embeddings.

    Of chat: `malformed` stops in the middle of its JSON and does not know it; `cut_off` says so; `blocked`
    has no text; of the list in the answer, `left_out` lacks its last item, `repeated` has its first twice,
    `invented` has one more, with an id nobody asked for.
    Of embeddings: `missing_vector` lacks the first vector, `null_vector` has null there, `reordered` has them
    from the last to the first (where the API numbers them)."""

    malformed: frozenset[int] = frozenset()
    cut_off: frozenset[int] = frozenset()
    blocked: frozenset[int] = frozenset()
    left_out: frozenset[int] = frozenset()
    repeated: frozenset[int] = frozenset()
    invented: frozenset[int] = frozenset()
    missing_vector: frozenset[int] = frozenset()
    null_vector: frozenset[int] = frozenset()
    reordered: frozenset[int] = frozenset()

    def of_chat(self, number: int, text: str) -> Content:
        if number in self.blocked:
            return Content(finish="blocked")
        if number in self.left_out | self.repeated | self.invented:
            text = self._with_other_items(number, text)
        if number in self.malformed | self.cut_off:
            text = text[: len(text) // 2]
        return Content(text=text, finish="length" if number in self.cut_off else "stop")

    def of_vectors(self, number: int, vectors: list[list[float]]) -> Content:
        found: list[tuple[int, list[float] | None]] = list(enumerate(vectors))
        if number in self.missing_vector:
            del found[0]
        elif number in self.null_vector:
            found[0] = (0, None)
        if number in self.reordered:
            found.reverse()
        return Content(vectors=tuple(found))

    def _with_other_items(self, number: int, text: str) -> str:
        answer = msgspec.json.decode(text)
        items = _items(answer)
        if number in self.repeated:
            items.append(items[0])
        if number in self.invented:
            name = "id" if "id" in items[0] else next(iter(items[0]))
            items.append(items[0] | {name: f"invented-{number}"})
        if number in self.left_out:
            items.pop()
        return msgspec.json.encode(answer).decode()


def _items(answer: Any) -> list[Any]:
    """The list that an answer is, or the first that it has."""
    inside = answer.values() if isinstance(answer, dict) else (answer,)
    found = next((one for one in inside if isinstance(one, list) and one), None)
    if found is None or not isinstance(found[0], dict):
        raise ValueError("faults: this answer has no list of items to leave one out of, or to add one to")
    return found
