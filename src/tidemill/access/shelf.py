"""Records of one sort, as values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec

from tidemill.contract.store import Store
from tidemill.core.courses import Advance, Course, Kind, Next

T = TypeVar("T", bound=msgspec.Struct)

OpenStore = Callable[[], Awaitable[Store]]


class Kept(NamedTuple, Generic[T]):
    """`until` is when it goes, None while nobody said."""

    id: str
    value: T
    state: str
    created: float
    until: float | None
    revision: int


class Shelf(Generic[T]):
    """`name` is what the records are listed by, and begins their ids."""

    def __init__(self, store: OpenStore, name: str, sort: type[T]) -> None:
        self._store, self._name = store, name
        self._decoder = msgspec.json.Decoder(sort)

    async def begin(self, id_: str, value: T, state: str, keep: float | None = None) -> bool:
        """False when there is one of that id."""
        return await self._advance(id_, 0, self._next(value, state, keep))

    async def change(self, kept: Kept[T], value: T, state: str, keep: float | None = None) -> bool:
        """False when somebody was quicker."""
        return await self._advance(kept.id, kept.revision, self._next(value, state, keep))

    async def end(self, kept: Kept[T]) -> bool:
        """Gone at once. False when somebody was quicker: one of two who take it has it."""
        return await self._advance(kept.id, kept.revision, None)

    async def get(self, id_: str) -> Kept[T] | None:
        [course] = await (await self._store()).courses(Kind.RECORD, [self.key(id_)])
        return self.read(course)

    async def page(
        self, limit: int, cursor: str | None = None, states: Sequence[str] | None = None
    ) -> tuple[list[Kept[T]], str | None]:
        """Newest first."""
        store = await self._store()
        page = await store.find_courses(
            Kind.RECORD, name=self._name, states=states, limit=limit, cursor=cursor
        )
        return [kept for course in page.courses if (kept := self.read(course))], page.cursor

    def key(self, id_: str) -> str:
        return f"{self._name}:{id_}"

    def read(self, course: Course | None) -> Kept[T] | None:
        if course is None:
            return None
        return Kept(
            id=course.id.removeprefix(f"{self._name}:"),
            value=self._decoder.decode(course.record),
            state=course.state,
            created=course.created,
            until=course.until,
            revision=course.revision,
        )

    def _next(self, value: T, state: str, keep: float | None) -> Next:
        return Next(name=self._name, state=state, record=msgspec.json.encode(value), keep=keep)

    async def _advance(self, id_: str, expected: int, then: Next | None) -> bool:
        item = Advance(kind=Kind.RECORD, id=self.key(id_), expected=expected, next=then)
        [answer] = await (await self._store()).advance([item])
        return answer.done
