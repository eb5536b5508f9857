"""Conformance tests for `advance`: the store writes a document together with its jobs, or writes nothing.

A record is a document that no worker advances, such as a token or a session.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tidemill.contract.jobs import KNOWN_ID_SECONDS
from tidemill.core.documents import Advance, AdvanceResult, Document, DocumentJob, DocumentUpdate, Worklist
from tidemill.core.filters import Filter
from tidemill.core.jobs import FlowPosition, ResultReference
from tidemill.core.operator_changes import CancelJobs, RetryJobs
from tidemill.core.outcomes import JobRelease
from tidemill.core.queues import QueueSettings
from tidemill.core.states import State
from tidemill.core.unique_keys import Unique
from tidemill.errors import ConfigurationError
from tidemill.testing.conformance.documents import (
    FLOW,
    RECORD,
    SCHEDULE,
    advance_to,
    flow_job,
    load_job_changes,
    load_work_items,
    run_advances,
)
from tidemill.testing.conformance.fixtures import SAMPLE_ERROR, StoreDriver, ids, need, new_job


class TestAdvance:
    async def test_f1_a_flow_starts_together_with_its_jobs(self, driver: StoreDriver) -> None:
        (begun,) = await run_advances(
            driver, advance_to("f", 0, flow_job("a"), new_job("b"), next={"due_in": 60.0})
        )
        now = driver.clock.wall()
        assert begun == AdvanceResult(
            done=True,
            document=Document(
                kind=FLOW,
                id="f",
                name="dub",
                state="running",
                created=now,
                revision=1,
                record=b'{"n":1}',
                due=now + 60,
            ),
            jobs=("a", "b"),
        )
        assert await driver.store.documents(FLOW, ["f", "g"]) == [begun.document, None]
        assert await driver.store.documents(SCHEDULE, ["f"]) == [None]
        assert ids(await driver.take()) == ["a", "b"]

    async def test_f3_the_answer_names_the_job_for_each_request(self, driver: StoreDriver) -> None:
        key = Unique("k")
        await driver.add(new_job("held", unique=key))
        (begun,) = await run_advances(
            driver,
            advance_to(
                "f",
                0,
                new_job("a"),
                new_job("b", unique=key),
                new_job("c"),
                new_job("d", unique=Unique("free")),
            ),
        )
        assert begun.jobs == ("a", "held", "c", "d")
        (repeated,) = await run_advances(driver, advance_to("f", 1, new_job("b", unique=key), new_job("a")))
        assert repeated.jobs == ("held", "a")
        (late,) = await run_advances(driver, advance_to("f", 1, new_job("e")))
        assert late.jobs == ()

    async def test_a_job_knows_its_flow(self, driver: StoreDriver) -> None:
        flow = FlowPosition(
            "f", "mux", 3, {"speech": ResultReference("speak", 4), "video": ResultReference("fetch")}
        )
        await run_advances(driver, advance_to("f", 0, new_job("a", flow=flow), new_job("b")))
        assert (await driver.job("a")).flow == flow
        assert (await driver.job("b")).flow is None
        claimed = await driver.take()
        assert [job.flow for job in claimed] == [flow, None]
        await driver.settle(claimed[0], JobRelease())
        assert (await driver.job("a")).flow == flow

    async def test_jobs_are_found_by_their_flow(self, driver: StoreDriver) -> None:
        await run_advances(
            driver, advance_to("f", 0, flow_job("a"), flow_job("b")), advance_to("g", 0, flow_job("c", "g"))
        )
        await driver.add("d")
        found = await driver.store.find(Filter(flow="f"))
        assert ids(found.jobs) == ["b", "a"]
        await driver.store.amend(Filter(flow="f", states=(State.READY,)), CancelJobs())
        assert await driver.store.counts() == {"q": {State.CANCELLED: 2, State.READY: 2}}

    async def test_f1_an_advance_updates_the_document(self, driver: StoreDriver) -> None:
        await run_advances(driver, advance_to("f"))
        driver.clock.advance(5)
        (gone_on,) = await run_advances(
            driver, advance_to("f", 1, flow_job("a"), next={"state": "failing", "record": b"2"})
        )
        document = gone_on.document
        assert document is not None
        assert (document.revision, document.state, document.record) == (2, "failing", b"2")
        assert document.created == driver.clock.wall() - 5
        assert await driver.state("a") is State.READY

    async def test_f2_an_advance_needs_the_current_revision(self, driver: StoreDriver) -> None:
        (first,) = await run_advances(driver, advance_to("f"))
        late = await run_advances(
            driver,
            advance_to("f", 0, flow_job("a")),
            advance_to("f", 2, flow_job("b")),
            advance_to("none", 1, flow_job("c")),
        )
        assert late == [AdvanceResult(False, first.document)] * 2 + [AdvanceResult(False, None)]
        assert await driver.store.counts() == {}

    async def test_f2_of_two_advances_one_is_applied(self, driver: StoreDriver) -> None:
        await run_advances(driver, advance_to("f"))
        twice = await run_advances(
            driver, advance_to("f", 1, flow_job("a")), advance_to("f", 1, flow_job("b"))
        )
        assert [result.done for result in twice] == [True, False]
        assert twice[0].document == twice[1].document
        assert await driver.store.counts() == {"q": {State.READY: 1}}

    async def test_f3_length_limits_do_not_apply(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(max_length=1)})
        await run_advances(driver, advance_to("f", 0, flow_job("a"), flow_job("b"), flow_job("c")))
        assert await driver.store.counts() == {"q": {State.READY: 3}}

    async def test_f3_a_known_id_stays_as_it_is(self, driver: StoreDriver) -> None:
        await driver.ended("a")
        await run_advances(driver, advance_to("f", 0, flow_job("a"), flow_job("b")))
        assert await driver.state("a") is State.DONE
        assert await driver.state("b") is State.READY

    async def test_f3_an_invalid_job_becomes_a_failed_job(self, driver: StoreDriver) -> None:
        """An invalid job of a flow is stored as a failed job with its error, so the flow learns of the
        failure. Otherwise the flow would wait for the job forever."""
        refused = DocumentJob("q", flow_job("a"), SAMPLE_ERROR)
        await driver.store.advance(
            [
                Advance(
                    kind=FLOW,
                    id="f",
                    expected=0,
                    next=DocumentUpdate(name="dub", state="running", record=b"{}"),
                    jobs=(
                        refused,
                        DocumentJob("q", flow_job("b", priority=10**9)),
                        DocumentJob("q", flow_job("c", needs=(need("nowhere", requests=1),))),
                    ),
                )
            ]
        )
        job = await driver.job("a")
        assert (job.state, job.error, job.flow) == (State.FAILED, SAMPLE_ERROR, FlowPosition("f", "step", 0))
        for id_, field in (("b", "priority"), ("c", "nowhere")):
            error = (await driver.job(id_)).error
            assert error is not None
            assert field in error.message
        assert await load_job_changes(driver) == {"f": [(id_, State.FAILED) for id_ in "abc"]}

    async def test_f3_an_invalid_job_keeps_its_key_and_limits(self, driver: StoreDriver) -> None:
        """An invalid job of a flow keeps its key, priority, tags and valid timeout. After an operator's retry
        it runs in the lane of its key, like an accepted job."""
        await driver.store.declare({"q": QueueSettings(key_concurrency=1)})
        limits: dict[str, Any] = {"key": "k", "priority": 2, "timeout": 9.0, "tags": ("t",), "trace": "r"}
        jobs = [
            DocumentJob("q", flow_job("a", **limits), SAMPLE_ERROR),
            DocumentJob("q", flow_job("b", **limits, needs=(need("nowhere", requests=1),))),
            DocumentJob("q", flow_job("c", **{**limits, "timeout": -1.0})),
        ]
        begun = advance_to("f")
        await driver.store.advance([replace(begun, jobs=tuple(jobs))])
        for id_, timeout in (("a", 9.0), ("b", 9.0), ("c", None)):
            job = await driver.job(id_)
            assert (job.state, job.key, job.priority) == (State.FAILED, "k", 2)
            assert (job.timeout, job.tags, job.trace) == (timeout, ("t",), "r")
        await driver.amend(RetryJobs(), "a", "b", "c")
        assert ids(await driver.take()) == ["a"], "one job per key at a time"

    async def test_f3_jobs_may_be_for_later(self, driver: StoreDriver) -> None:
        await run_advances(driver, advance_to("f", 0, flow_job("a", delay=10)))
        assert await driver.state("a") is State.SCHEDULED
        driver.clock.advance(10)
        assert ids(await driver.take()) == ["a"]

    async def test_f4_an_ended_flow_is_kept(self, driver: StoreDriver) -> None:
        await run_advances(driver, advance_to("f"))
        (ended,) = await run_advances(driver, advance_to("f", 1, next={"state": "done", "keep": 60.0}))
        now = driver.clock.wall()
        assert ended.document is not None
        assert (ended.document.finished, ended.document.until) == (now, now + 60)
        driver.clock.advance(10)
        (repeated,) = await run_advances(driver, advance_to("f", 2, next={"state": "done", "keep": 60.0}))
        assert repeated.document is not None
        assert (repeated.document.finished, repeated.document.until) == (now, now + 60), "it keeps its expiry"
        (other,) = await run_advances(driver, advance_to("f", 3, next={"state": "failed", "keep": 60.0}))
        assert other.document is not None
        assert (other.document.finished, other.document.until) == (now + 10, now + 70)
        (back,) = await run_advances(driver, advance_to("f", 4))
        assert back.document is not None
        assert (back.document.finished, back.document.until) == (None, None)

    async def test_f4_the_id_of_a_deleted_flow_stays_known(self, driver: StoreDriver) -> None:
        ended = advance_to("f", 1, next={"state": "done", "keep": 0.0})
        await run_advances(driver, advance_to("f", next={"due_in": 1.0}))
        await run_advances(driver, ended)
        await driver.store.prune()
        assert await driver.store.documents(FLOW, ["f"]) == [None]
        assert await run_advances(driver, ended) == [AdvanceResult(False, None)]
        assert await run_advances(driver, advance_to("f")) == [AdvanceResult(False, None)]
        assert (await run_advances(driver, advance_to("f", kind=SCHEDULE)))[
            0
        ].done  # a schedule with the same name is another document
        driver.clock.advance(KNOWN_ID_SECONDS)
        assert await load_work_items(driver) == []
        assert (await run_advances(driver, advance_to("f")))[0].done

    async def test_f4_the_name_of_a_schedule_is_free_at_once(self, driver: StoreDriver) -> None:
        for deletion in (Advance(kind=SCHEDULE, id="s", expected=1, next=None), None):
            await run_advances(driver, advance_to("s", kind=SCHEDULE, next={"due_in": 1.0}))
            if deletion is None:
                await run_advances(driver, advance_to("s", 1, kind=SCHEDULE, next={"keep": 60.0}))
                driver.clock.advance(61)
                await driver.store.prune()
            else:
                await run_advances(driver, deletion)
            assert await driver.store.documents(SCHEDULE, ["s"]) == [None]
            (repeated,) = await run_advances(driver, advance_to("s", kind=SCHEDULE))
            assert repeated.document is not None
            assert repeated.document.revision == 1
            await run_advances(driver, Advance(kind=SCHEDULE, id="s", expected=1, next=None))

    async def test_f4_a_record_stays_until_it_is_written(self, driver: StoreDriver) -> None:
        """A record (a token, a session) changes only by a write that names its current revision. After the
        record was deleted or pruned, a new record can have its id."""
        for by_hand in (True, False):
            (begun,) = await run_advances(driver, advance_to("t", kind=RECORD, next={"name": "token"}))
            assert begun.document is not None
            assert await driver.store.documents(FLOW, ["t"]) == [None]
            (lost,) = await run_advances(driver, advance_to("t", kind=RECORD))
            assert (lost.done, lost.document) == (False, begun.document)
            (ended,) = await run_advances(
                driver, advance_to("t", 1, kind=RECORD, next={"state": "over", "keep": 60.0})
            )
            assert ended.done
            driver.clock.advance(59)
            await driver.store.prune()
            assert await driver.store.documents(RECORD, ["t"]) == [ended.document]
            driver.clock.advance(1)
            if by_hand:
                await run_advances(driver, Advance(kind=RECORD, id="t", expected=2, next=None))
            else:
                await driver.store.prune()
            assert await driver.store.documents(RECORD, ["t"]) == [None]
            assert await driver.store.document_counts(RECORD) == {}

    async def test_f5_f13_a_record_is_on_no_worklist(self, driver: StoreDriver) -> None:
        """One advance writes a record (a token, a session) and its jobs, or nothing. No worklist contains a
        record, and the store refuses a due time or `requeue` for it."""
        for wrong in (
            advance_to("t", kind=RECORD, requeue=True),
            advance_to("t", kind=RECORD, next={"due": 1.0}),
            advance_to("t", kind=RECORD, next={"due_in": 1.0}),
        ):
            with pytest.raises(ConfigurationError, match=r"(requeue|due): .* record"):
                await run_advances(driver, advance_to("fine"), wrong)
        assert await driver.store.documents(FLOW, ["fine"]) == [None]
        (begun,) = await run_advances(driver, advance_to("t", 0, new_job("a"), kind=RECORD))
        assert begun.jobs == ("a",)
        assert await run_advances(driver, advance_to("t", 0, new_job("b"), kind=RECORD)) == [
            AdvanceResult(False, begun.document)
        ]
        assert ids(await driver.take()) == ["a"]
        assert await driver.store.worklist(RECORD) == Worklist(())
        assert (await driver.store.lead([], "w", 10.0)).dues == {FLOW: None, SCHEDULE: None}

    async def test_f5_invalid_ids_and_names_are_refused(self, driver: StoreDriver) -> None:
        for wrong in (
            advance_to(""),
            advance_to("f" * 201),
            advance_to("f", next={"name": ""}),
            advance_to("a\0b"),
        ):
            with pytest.raises(ConfigurationError, match=r"id|name"):
                await run_advances(driver, advance_to("fine", 0, flow_job("a")), wrong)
        assert await driver.store.documents(FLOW, ["fine"]) == [None]
        assert await driver.store.counts() == {}

    async def test_f5_a_flow_is_not_deleted_before_its_jobs(self, driver: StoreDriver) -> None:
        """Deleting a flow directly is refused. No queue prunes the jobs of a flow (J83), so without the flow
        nothing would delete these jobs."""
        await run_advances(driver, advance_to("f", 0, flow_job("a")))
        forget = Advance(kind=FLOW, id="f", expected=1, next=None)
        with pytest.raises(ConfigurationError, match=r"next: .* keep=0"):
            await run_advances(driver, advance_to("fine", 0, flow_job("b")), forget)
        assert [
            document and document.revision for document in await driver.store.documents(FLOW, ["f", "fine"])
        ] == [
            1,
            None,
        ]
