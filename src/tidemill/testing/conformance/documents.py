"""Conformance tests for `find_documents` and document counts. Also helpers that write documents in tests."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill.core.documents import (
    Advance,
    AdvanceResult,
    DocumentJob,
    DocumentKind,
    DocumentUpdate,
    WorkItem,
)
from tidemill.core.jobs import FlowPosition, NewJob
from tidemill.core.outcomes import Outcome, WriteAnswer
from tidemill.core.states import State
from tidemill.errors import ConfigurationError
from tidemill.testing.conformance.fixtures import StoreDriver, new_job

FLOW, SCHEDULE, RECORD = DocumentKind


def flow_job(job: str, flow: str = "f", **options: Any) -> NewJob:
    return new_job(job, flow=FlowPosition(flow, "step", 0), **options)


def advance_to(
    id_: str = "f", expected: int = 0, *jobs: NewJob, kind: DocumentKind = FLOW, **more: Any
) -> Advance:
    """Returns an `Advance`: the write of one document with the new jobs `jobs`. `expected=0` creates the
    document; otherwise `expected` is the revision that the write replaces."""
    fields = {"name": "dub", "state": "running", "record": b'{"n":1}', **more.pop("next", {})}
    made = tuple(DocumentJob("q", job) for job in jobs)
    return Advance(kind=kind, id=id_, expected=expected, next=DocumentUpdate(**fields), jobs=made, **more)


async def run_advances(driver: StoreDriver, *advances: Advance) -> list[AdvanceResult]:
    return await driver.store.advance(advances)


async def load_work_items(driver: StoreDriver, kind: DocumentKind = FLOW) -> list[WorkItem]:
    return list((await driver.store.worklist(kind)).work_items)


async def load_job_changes(
    driver: StoreDriver, kind: DocumentKind = FLOW
) -> dict[str, list[tuple[str, State | None]]]:
    """Returns the changes on the worklist: for each document id, pairs of job id and new state."""
    return {
        item.document.id: [(end.job, end.state) for end in item.changes]
        for item in await load_work_items(driver, kind)
    }


async def consume_worklist(driver: StoreDriver) -> None:
    """Advances every flow on the worklist, so that the worklist is empty."""
    for item in await load_work_items(driver):
        taken = tuple(end.number for end in item.changes)
        (done,) = await run_advances(
            driver, advance_to(item.document.id, item.document.revision, taken=taken)
        )
        assert done.done


async def run_job(driver: StoreDriver, job: str, outcome: Outcome) -> None:
    claimed = await driver.take_one(named=[job])
    assert await driver.settle(claimed, outcome) is WriteAnswer.OK


class TestFindDocuments:
    async def test_f21_newest_first_page_by_page(self, driver: StoreDriver) -> None:
        for name in "abc":
            await run_advances(
                driver, advance_to(name), advance_to(f"{name}2"), advance_to(name, kind=SCHEDULE)
            )
            driver.clock.advance(1)
        first = await driver.store.find_documents(FLOW, limit=4)
        await run_advances(driver, advance_to("new"))
        rest = await driver.store.find_documents(FLOW, limit=4, cursor=first.cursor)
        found = [document.id for document in (*first.documents, *rest.documents)]
        assert found == ["c2", "c", "b2", "b", "a2", "a"]
        assert rest.cursor is None

    async def test_f21_by_name_and_state(self, driver: StoreDriver) -> None:
        await run_advances(
            driver,
            advance_to("a"),
            advance_to("b", next={"name": "other"}),
            advance_to("c", next={"state": "done", "keep": 9.0}),
        )
        named = await driver.store.find_documents(FLOW, name="dub")
        assert [document.id for document in named.documents] == ["c", "a"]
        done = await driver.store.find_documents(FLOW, name="dub", states=["done", "failed"])
        assert [document.id for document in done.documents] == ["c"]
        assert (await driver.store.find_documents(FLOW, states=[])).documents == ()

    async def test_f21_records_are_found_by_name_and_state(self, driver: StoreDriver) -> None:
        for number in range(3):
            await run_advances(
                driver, *(advance_to(f"{name}{number}", kind=RECORD, next={"name": name}) for name in "ab")
            )
            driver.clock.advance(1)
        first = await driver.store.find_documents(RECORD, name="a", limit=2)
        rest = await driver.store.find_documents(RECORD, name="a", limit=2, cursor=first.cursor)
        assert [document.id for document in (*first.documents, *rest.documents)] == ["a2", "a1", "a0"]
        assert (await driver.store.find_documents(FLOW)).documents == ()
        assert await driver.store.document_counts(RECORD) == {"running": 6}

    async def test_f21_an_invalid_cursor_is_refused(self, driver: StoreDriver) -> None:
        for wrong in ("nonsense", "nan f", "1.0", "1.0 f\0"):
            with pytest.raises(ConfigurationError, match="cursor"):
                await driver.store.find_documents(FLOW, cursor=wrong)

    async def test_f22_documents_are_counted_by_state(self, driver: StoreDriver) -> None:
        assert await driver.store.document_counts(FLOW) == {}
        await run_advances(
            driver, advance_to("a"), advance_to("b"), advance_to("c", next={"state": "done", "keep": 0.0})
        )
        assert await driver.store.document_counts(FLOW) == {"running": 2, "done": 1}
        await run_advances(driver, advance_to("a", 1, next={"state": "done", "keep": 0.0}))
        await driver.store.prune()
        assert await driver.store.document_counts(FLOW) == {"running": 1}
        assert await driver.store.document_counts(SCHEDULE) == {}

    @pytest.mark.parametrize("word", ["nul\0", "lone \ud800"])
    async def test_f23_invalid_ids_and_names_are_refused_by_every_verb(
        self, driver: StoreDriver, word: str
    ) -> None:
        for call in (
            driver.store.documents(FLOW, ["fine", word]),
            driver.store.worklist(FLOW, ids=[word]),
            driver.store.find_documents(FLOW, name=word),
            driver.store.find_documents(FLOW, states=["fine", word]),
            driver.store.advance([advance_to(word)]),
        ):
            with pytest.raises(ConfigurationError, match="NUL characters or lone surrogates"):
                await call
