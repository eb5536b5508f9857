"""Pages for which so many jobs are looked at and no more."""

# ruff: noqa: S101 - a test suite asserts, and its numbers are its data
from __future__ import annotations

import pytest

from tidemill.contract.reader import Page
from tidemill.core.changes import Archive
from tidemill.core.filters import Filter
from tidemill.core.states import State
from tidemill.testing.conformance.driver import Driver, ids, new
from tidemill.testing.conformance.reading import everything

JOBS, LOOKS = 24, 5


async def pages(drive: Driver, wanted: Filter, limit: int, looks: int) -> list[Page]:
    found = [await drive.store.find(wanted, limit, None, looks)]
    while (cursor := found[-1].cursor) is not None:
        found.append(await drive.store.find(wanted, limit, cursor, looks))
        assert found[-1].cursor is None or found[-1].cursor < cursor, "every page gets further"
    return found


async def some_of_every_state(drive: Driver) -> None:
    for number in range(JOBS):
        payload = {"host": f"h{number % 3}", "said": "Oak" if number in {0, 13} else "elm"}
        job = new(
            f"{'ab'[number % 2]}{number:02}",
            payload=payload,
            task=f"t{number % 4}",
            key="k" if number % 5 == 0 else None,
            tags=("x",) if number % 6 == 0 else (),
            delay=60.0 if number % 8 == 0 else 0.0,
        )
        await drive.add(job, queue="pq"[number % 2])
        drive.clock.advance(1.0)
    await drive.ended(*(f"z{number}" for number in range(4)))
    await drive.amend(Archive(), "a04", "a12", "b17")
    await drive.take(limit=3, shares=(("p", 3),))


class TestLooks:
    async def test_r11_a_page_ends_when_so_many_were_looked_at(self, drive: Driver) -> None:
        await drive.add(*(new(f"{n:02}", payload="oak" if n == 0 else "elm") for n in range(JOBS)))
        found = await pages(drive, Filter(text="oak"), 10, LOOKS)
        assert [ids(page.jobs) for page in found] == [[], [], [], [], ["00"]]
        assert [page.partial for page in found] == [True, True, True, True, False]

    async def test_r11_one_that_is_full_is_not_partial(self, drive: Driver) -> None:
        await drive.add(*(f"{n:02}" for n in range(JOBS)))
        page = await drive.store.find(Filter(), 3, None, LOOKS)
        assert (ids(page.jobs), page.partial) == (["23", "22", "21"], False)
        assert page.cursor is not None

    async def test_r11_nothing_is_partial_that_was_looked_at_to_the_end(self, drive: Driver) -> None:
        await drive.add(*(f"{n:02}" for n in range(JOBS)))
        assert await drive.store.find(Filter(text="oak"), 3, None, JOBS) == Page((), None)
        assert len((await drive.store.find(Filter(), JOBS, None, JOBS)).jobs) == JOBS
        assert await drive.store.find(Filter(queue="nobody"), 3, None, LOOKS) == Page((), None)

    async def test_r11_names_are_looked_up_however_many(self, drive: Driver) -> None:
        names = tuple(f"{n:02}" for n in range(JOBS))
        await drive.add(*names)
        page = await drive.store.find(Filter(ids=names), JOBS, None, LOOKS)
        assert (ids(page.jobs), page.cursor) == (list(names[::-1]), None)

    @pytest.mark.parametrize(
        "wanted",
        [
            Filter(),
            *(Filter(states=(state,)) for state in State),
            Filter(states=(State.DONE, State.FAILED, State.RUNNING)),
            Filter(queue="p"),
            Filter(queue="q", states=(State.READY,)),
            Filter(task="t1"),
            Filter(key="k", queue="p"),
            Filter(tag="x", states=(State.READY, State.FAILED)),
            Filter(text="OAK"),
            Filter(text="oak", states=(State.READY,)),
            Filter(fields=(("host", "h1"),)),
            Filter(fields=(("host", "h1"),), states=(State.FAILED,)),
            Filter(id_prefix="a"),
            Filter(id_prefix="a1", states=(State.FAILED,)),
            Filter(time="finished", since=0.0),
            Filter(time="finished", until=0.0),
            Filter(time="due", states=(State.SCHEDULED,), since=0.0),
            Filter(states=()),
        ],
        ids=str,
    )
    async def test_r11_page_after_page_meets_what_one_search_meets(
        self, drive: Driver, wanted: Filter
    ) -> None:
        await some_of_every_state(drive)
        whole = ids(await everything(drive, wanted, 100))
        for limit, looks in ((100, LOOKS), (2, LOOKS), (2, 1), (3, 1000)):
            met = [name for page in await pages(drive, wanted, limit, looks) for name in ids(page.jobs)]
            assert met == whole
