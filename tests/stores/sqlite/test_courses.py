"""Flows and schedules in the file: all or nothing, one winner, and no number twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

from tidemill.core.changes import Cancel, RetryNow
from tidemill.core.courses import Advance, End, Kind, Made, Next
from tidemill.core.filters import Filter
from tidemill.core.flow_jobs import InFlow
from tidemill.core.job import Group, NewJob
from tidemill.core.queues import QueueSettings, Retention
from tidemill.core.states import State
from tidemill.errors import StoreError
from tidemill.stores.sqlite import SqliteStore, insert

GOING = Next(name="dub", state="running", record=b"{}")


def going(expected: int, *jobs: str, taken: tuple[int, ...] = (), keep: float | None = None) -> Advance:
    made = tuple(
        Made("default", NewJob(id=job, task="noop", payload=b"{}", flow=InFlow("f", "step", index)))
        for index, job in enumerate(jobs)
    )
    then = GOING if keep is None else Next(name="dub", state="done", record=b"{}", keep=keep)
    return Advance(kind=Kind.FLOW, id="f", expected=expected, next=then, jobs=made, taken=taken)


async def ends(store: SqliteStore) -> list[End]:
    return [end for one in (await store.agenda(Kind.FLOW)).stirred for end in one.ends]


async def test_f1_an_advance_that_breaks_off_has_done_nothing(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.advance([going(0, "a")])
    await store.amend(Filter(ids=("a",)), Cancel())
    (end,) = await ends(store)

    def broken(*_: object) -> None:
        raise OSError("no more")

    with monkeypatch.context() as patched:
        patched.setattr(insert, "write_rows", broken)
        with pytest.raises(StoreError, match="no more"):
            await store.advance([going(1, "b", taken=(end.number,))])
    assert await ends(store) == [end]
    (course,) = await store.courses(Kind.FLOW, ["f"])
    assert course is not None
    assert course.revision == 1
    assert await store.get(["b"]) == [None]


async def test_f2_of_many_handles_one_is_quicker(store: SqliteStore, path: Path) -> None:
    others = [await SqliteStore(path).open() for _ in range(3)]
    try:
        for revision in range(5):
            handles = (store, *others)
            tries = (
                one.advance([going(revision, f"{revision} by {number}")])
                for number, one in enumerate(handles)
            )
            answers = [answer for (answer,) in await asyncio.gather(*tries)]
            assert sorted(answer.done for answer in answers) == [False] * 3 + [True]
            assert (await store.counts())["default"] == {State.READY: revision + 1}
    finally:
        for one in others:
            await one.close()


async def test_f10_a_number_is_never_given_again(store: SqliteStore) -> None:
    """Whoever took an end long ago, and is late, must not take one that came since."""
    await store.advance([going(0, "a")])
    taken: set[int] = set()
    for revision in range(1, 4):
        await store.amend(Filter(ids=("a",)), Cancel() if revision % 2 else RetryNow())
        (end,) = await ends(store)
        assert end.number not in taken
        taken.add(end.number)
        await store.advance([going(revision, taken=(end.number,))])
        assert await ends(store) == []
        await store.close()
        await store.open()


async def test_j83_flows_that_are_kept_do_not_hold_up_the_others(store: SqliteStore) -> None:
    """Of a queue's surplus only its own jobs are: those of flows are counted with it and stay."""
    await store.declare({"default": QueueSettings(keep_cancelled=Retention(count=2))})
    await store.advance([going(0, *(f"part{number}" for number in range(5)))])
    plain = tuple(NewJob(id=f"plain{number}", task="noop", payload=b"{}") for number in range(5))
    await store.insert([Group("default", plain)])
    await store.amend(Filter(), Cancel())
    assert (await store.prune(2)).pruned == 2
    assert (await store.prune()).pruned == 1
    assert (await store.prune()).pruned == 0
    left = {job.id for job in (await store.find(Filter())).jobs}
    assert left == {"plain3", "plain4", *(f"part{number}" for number in range(5))}


async def test_check_finds_ends_of_flows_that_are_gone(store: SqliteStore, path: Path) -> None:
    await store.advance([going(0, "a")])
    await store.amend(Filter(ids=("a",)), Cancel())
    assert await store.check() == ()
    outsider = apsw.Connection(str(path))
    outsider.execute("DELETE FROM courses")
    outsider.close()
    assert await store.check() == ("1 ends are kept of 1 flows that are gone",)


async def test_f4_nothing_is_left_of_a_flow_that_is_gone(store: SqliteStore) -> None:
    await store.advance([going(0, "a", "b")])
    await store.amend(Filter(flow="f"), Cancel())
    await store.advance([going(1, keep=0.0)])
    await store.prune()
    connection = store._writer._connection
    assert connection is not None
    left = "SELECT (SELECT count(*) FROM stirs), (SELECT count(*) FROM courses), (SELECT count(*) FROM jobs)"
    assert connection.execute(left).fetchone() == (0, 0, 0)
    assert await store.check() == ()
