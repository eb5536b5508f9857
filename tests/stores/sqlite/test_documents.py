"""Documents in the file: advances are atomic, one of several wins, and no worklist number is reused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

from tidemill.core.documents import Advance, DocumentJob, DocumentKind, DocumentUpdate, JobChange
from tidemill.core.filters import Filter
from tidemill.core.jobs import FlowPosition, JobGroup, NewJob
from tidemill.core.operator_changes import CancelJobs, RetryJobs
from tidemill.core.queues import QueueSettings, Retention
from tidemill.core.states import State
from tidemill.errors import StoreError
from tidemill.stores.sqlite import SqliteStore, insert

GOING = DocumentUpdate(name="dub", state="running", record=b"{}")


def going(expected: int, *jobs: str, taken: tuple[int, ...] = (), keep: float | None = None) -> Advance:
    made = tuple(
        DocumentJob(
            "default", NewJob(id=job, task="noop", payload=b"{}", flow=FlowPosition("f", "step", index))
        )
        for index, job in enumerate(jobs)
    )
    then = GOING if keep is None else DocumentUpdate(name="dub", state="done", record=b"{}", keep=keep)
    return Advance(kind=DocumentKind.FLOW, id="f", expected=expected, next=then, jobs=made, taken=taken)


async def ends(store: SqliteStore) -> list[JobChange]:
    return [end for one in (await store.worklist(DocumentKind.FLOW)).work_items for end in one.changes]


async def test_f1_a_failed_advance_changes_nothing(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.advance([going(0, "a")])
    await store.amend(Filter(ids=("a",)), CancelJobs())
    (end,) = await ends(store)

    def broken(*_: object) -> None:
        raise OSError("no more")

    with monkeypatch.context() as patched:
        patched.setattr(insert, "write_rows", broken)
        with pytest.raises(StoreError, match="no more"):
            await store.advance([going(1, "b", taken=(end.number,))])
    assert await ends(store) == [end]
    (document,) = await store.documents(DocumentKind.FLOW, ["f"])
    assert document is not None
    assert document.revision == 1
    assert await store.get(["b"]) == [None]


async def test_f2_one_of_many_concurrent_advances_wins(store: SqliteStore, path: Path) -> None:
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


async def test_f10_a_worklist_number_is_never_reused(store: SqliteStore) -> None:
    """A late advance must not delete a worklist row that came after it had read."""
    await store.advance([going(0, "a")])
    taken: set[int] = set()
    for revision in range(1, 4):
        await store.amend(Filter(ids=("a",)), CancelJobs() if revision % 2 else RetryJobs())
        (end,) = await ends(store)
        assert end.number not in taken
        taken.add(end.number)
        await store.advance([going(revision, taken=(end.number,))])
        assert await ends(store) == []
        await store.close()
        await store.open()


async def test_j83_kept_flows_do_not_stop_pruning_of_other_jobs(store: SqliteStore) -> None:
    """Jobs of flows do not count against a queue's retention."""
    await store.declare({"default": QueueSettings(keep_cancelled=Retention(count=2))})
    await store.advance([going(0, *(f"part{number}" for number in range(5)))])
    plain = tuple(NewJob(id=f"plain{number}", task="noop", payload=b"{}") for number in range(5))
    await store.insert([JobGroup("default", plain)])
    await store.amend(Filter(), CancelJobs())
    assert (await store.prune(2)).pruned == 2
    assert (await store.prune()).pruned == 1
    assert (await store.prune()).pruned == 0
    left = {job.id for job in (await store.find(Filter())).jobs}
    assert left == {"plain3", "plain4", *(f"part{number}" for number in range(5))}


async def test_check_finds_job_changes_of_deleted_flows(store: SqliteStore, path: Path) -> None:
    await store.advance([going(0, "a")])
    await store.amend(Filter(ids=("a",)), CancelJobs())
    assert await store.check() == ()
    outsider = apsw.Connection(str(path))
    outsider.execute("DELETE FROM documents")
    outsider.close()
    assert await store.check() == ("1 job changes are kept of 1 flows that are gone",)


async def test_f4_a_deleted_flow_leaves_no_rows(store: SqliteStore) -> None:
    await store.advance([going(0, "a", "b")])
    await store.amend(Filter(flow="f"), CancelJobs())
    await store.advance([going(1, keep=0.0)])
    await store.prune()
    connection = store._writer._connection
    assert connection is not None
    counts = (
        "(SELECT count(*) FROM worklist)",
        "(SELECT count(*) FROM documents)",
        "(SELECT count(*) FROM jobs)",
    )
    left = f"SELECT {', '.join(counts)}"
    assert connection.execute(left).fetchone() == (0, 0, 0)
    assert await store.check() == ()
