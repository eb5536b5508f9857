"""One round: measured, decided, written, and the messages made, in one step of the store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from tidemill.contract.store import Store
from tidemill.core.courses import Advance, Course, Kind, Made, Next
from tidemill.telling.alerts.book import BOOK_ID, RECORD_NAME, Book
from tidemill.telling.alerts.deciding import decide, worker_ends, worker_left
from tidemill.telling.alerts.measuring import MEASURED_APART, Look, Values, measured_by
from tidemill.telling.alerts.rule import Measure, On, Rule
from tidemill.telling.alerts.sending import made
from tidemill.telling.alerts.wording import message
from tidemill.telling.telling import Telling

OWN_WITHIN = 10.0
"""Seconds in which an application's own measure answers."""


async def read(store: Store) -> tuple[Course | None, Book]:
    """One that another version wrote and nobody here understands is begun anew."""
    [course] = await store.courses(Kind.RECORD, [BOOK_ID])
    try:
        return course, Book() if course is None else msgspec.json.decode(course.record, type=Book)
    except msgspec.DecodeError:
        return course, Book()


class Round(NamedTuple):
    """How many messages were made, and what an application's own measures raised."""

    made: int
    broken: dict[str, Exception]


async def run(store: Store, telling: Telling) -> Round:
    """Of two who do it at once the store takes one."""
    course, book = await read(store)
    now = (await store.read_clock()).wall
    rules = telling.rules
    before, book = book, await _with_workers(store, book, rules, now)
    measured, broken = await _measured(Look(store, book, now), rules, telling.measures)
    told = decide(book, rules, measured, now, repeat=telling.repeat, digest=telling.digest)
    if told.book == before:
        return Round(0, broken)
    revision = 0 if course is None else course.revision
    jobs: tuple[Made, ...] = ()
    if told.notices:
        text = message(told.notices, telling.where(), telling.public_url)
        jobs = made(telling.channels, text, f"{BOOK_ID} {0 if course is None else course.created} {revision}")
    done = await _write(store, revision, told.book, jobs)
    return Round(len(jobs) if done else 0, broken)


async def leave(store: Store, worker: str) -> None:
    """A worker that stops is not missed."""
    while True:
        course, book = await read(store)
        if course is None or not book.workers:  # nobody misses workers
            return
        now = (await store.read_clock()).wall
        if await _write(store, course.revision, worker_left(book, worker, now)):
            return


async def _write(store: Store, expected: int, book: Book, jobs: tuple[Made, ...] = ()) -> bool:
    becomes = Next(name=RECORD_NAME, state="kept", record=msgspec.json.encode(book))
    advance = Advance(kind=Kind.RECORD, id=BOOK_ID, expected=expected, next=becomes, jobs=jobs)
    [answer] = await store.advance([advance])
    return answer.done


async def _with_workers(store: Store, book: Book, rules: Mapping[str, Rule], now: float) -> Book:
    windows = [rule.window for rule in rules.values() if rule.on is On.WORKER_GONE]
    if not windows:
        return book
    alive = {info.id: info.seen for info in await store.workers()}
    return worker_ends(book, alive, now, max(windows))


async def _measured(
    look: Look, rules: Mapping[str, Rule], measures: Mapping[str, Measure]
) -> tuple[dict[str, Values], dict[str, Exception]]:
    """A measure of the application's own that raises, or does not answer, silences no other rule."""
    found = {name: await look.measure(rule) for name, rule in rules.items() if rule.on not in MEASURED_APART}
    broken: dict[str, Exception] = {}
    for name in [name for name in measures if rules[name].on is On.OWN]:
        try:
            async with asyncio.timeout(OWN_WITHIN):
                found[name] = await measured_by(measures[name])
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            broken[name] = error
    return found, broken
