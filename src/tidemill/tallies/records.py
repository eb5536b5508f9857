"""How tallies and totals lie in the store: as records it does not look into."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, TypeVar

import msgspec

from tidemill.core.courses import Advance, Advanced, Course, Kind, Next
from tidemill.tallies.families import Counted

if TYPE_CHECKING:
    from tidemill.contract.store import Store

TALLY = "tally"
SUM, TOTALS = "tally sum", "totals"
"""Names of records, and of those of which there is one also the id."""
OPEN, SEALED, KEPT = "open", "sealed", "kept"

AT_ONCE = 100

T = TypeVar("T")


class Sum(msgspec.Struct, frozen=True):
    """Tallies added up. `folded` are the ids of those that may still be there, and are in it."""

    counted: tuple[Counted, ...] = ()
    folded: tuple[str, ...] = ()


async def every_tally(store: Store) -> AsyncIterator[Course]:
    cursor: str | None = None
    while True:
        page = await store.find_courses(Kind.RECORD, name=TALLY, limit=AT_ONCE, cursor=cursor)
        for course in page.courses:
            yield course
        if page.cursor is None:
            return
        cursor = page.cursor


async def get(store: Store, name: str, kind: type[T]) -> tuple[int, T]:
    """The one record of that name and its revision, 0 when there is none yet."""
    [course] = await store.courses(Kind.RECORD, [name])
    return (0, kind()) if course is None else (course.revision, msgspec.json.decode(course.record, type=kind))


async def put(store: Store, name: str, expected: int, record: object) -> bool:
    """False: somebody else was quicker."""
    return (
        await write(store, name, expected, name=name, state=KEPT, record=msgspec.json.encode(record))
    ).done


async def write(store: Store, id_: str, expected: int, *, name: str, state: str, record: bytes) -> Advanced:
    then = Next(name=name, state=state, record=record)
    [advanced] = await store.advance([Advance(kind=Kind.RECORD, id=id_, expected=expected, next=then)])
    return advanced


async def forget(store: Store, course: Course) -> None:
    await store.advance([Advance(kind=Kind.RECORD, id=course.id, expected=course.revision, next=None)])


def counted_in(course: Course) -> tuple[Counted, ...]:
    """Nothing, of a program whose tallies are others: what is shown, and what is pruned, waits for it."""
    try:
        return msgspec.json.decode(course.record, type=tuple[Counted, ...])
    except msgspec.DecodeError:
        return ()
