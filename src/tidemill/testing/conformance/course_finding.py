"""find_courses, course_counts: flows, schedules and records are looked through."""

# ruff: noqa: S101 - a test suite asserts
from __future__ import annotations

import pytest

from tidemill.errors import ConfigurationError
from tidemill.testing.conformance.courses import (
    FLOW,
    RECORD,
    SCHEDULE,
    advance,
    going,
)
from tidemill.testing.conformance.driver import Driver


class TestFindCourses:
    async def test_f21_newest_first_page_by_page(self, drive: Driver) -> None:
        for name in "abc":
            await advance(drive, going(name), going(f"{name}2"), going(name, kind=SCHEDULE))
            drive.clock.advance(1)
        first = await drive.store.find_courses(FLOW, limit=4)
        await advance(drive, going("new"))
        rest = await drive.store.find_courses(FLOW, limit=4, cursor=first.cursor)
        assert [one.id for one in (*first.courses, *rest.courses)] == ["c2", "c", "b2", "b", "a2", "a"]
        assert rest.cursor is None

    async def test_f21_by_name_and_state(self, drive: Driver) -> None:
        await advance(
            drive,
            going("a"),
            going("b", next={"name": "other"}),
            going("c", next={"state": "done", "keep": 9.0}),
        )
        named = await drive.store.find_courses(FLOW, name="dub")
        assert [one.id for one in named.courses] == ["c", "a"]
        done = await drive.store.find_courses(FLOW, name="dub", states=["done", "failed"])
        assert [one.id for one in done.courses] == ["c"]
        assert (await drive.store.find_courses(FLOW, states=[])).courses == ()

    async def test_f21_records_by_what_they_are(self, drive: Driver) -> None:
        for number in range(3):
            await advance(
                drive, *(going(f"{name}{number}", kind=RECORD, next={"name": name}) for name in "ab")
            )
            drive.clock.advance(1)
        first = await drive.store.find_courses(RECORD, name="a", limit=2)
        rest = await drive.store.find_courses(RECORD, name="a", limit=2, cursor=first.cursor)
        assert [one.id for one in (*first.courses, *rest.courses)] == ["a2", "a1", "a0"]
        assert (await drive.store.find_courses(FLOW)).courses == ()
        assert await drive.store.course_counts(RECORD) == {"running": 6}

    async def test_f21_a_cursor_of_something_else(self, drive: Driver) -> None:
        for wrong in ("nonsense", "nan f", "1.0", "1.0 f\0"):
            with pytest.raises(ConfigurationError, match="cursor"):
                await drive.store.find_courses(FLOW, cursor=wrong)

    async def test_f22_counts(self, drive: Driver) -> None:
        assert await drive.store.course_counts(FLOW) == {}
        await advance(drive, going("a"), going("b"), going("c", next={"state": "done", "keep": 0.0}))
        assert await drive.store.course_counts(FLOW) == {"running": 2, "done": 1}
        await advance(drive, going("a", 1, next={"state": "done", "keep": 0.0}))
        await drive.store.prune()
        assert await drive.store.course_counts(FLOW) == {"running": 1}
        assert await drive.store.course_counts(SCHEDULE) == {}

    @pytest.mark.parametrize("word", ["nul\0", "lone \ud800"])
    async def test_f23_are_refused_by_every_verb_alike(self, drive: Driver, word: str) -> None:
        for asked in (
            drive.store.courses(FLOW, ["fine", word]),
            drive.store.agenda(FLOW, ids=[word]),
            drive.store.find_courses(FLOW, name=word),
            drive.store.find_courses(FLOW, states=["fine", word]),
            drive.store.advance([going(word)]),
        ):
            with pytest.raises(ConfigurationError, match="NUL characters or lone surrogates"):
                await asked
