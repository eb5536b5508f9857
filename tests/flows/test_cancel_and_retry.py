"""Cancel and retry of flows, with other processes in between (I17 to I19)."""

from __future__ import annotations

from unittest.mock import AsyncMock

import pytest

from tests.flows.support import Studio, claim_of, dub, state
from tidemill import FlowCancelled, FlowHandle, FlowNotFound, JobNotFound, Tidemill
from tidemill.contract.store import Store
from tidemill.core.claims import Settlement
from tidemill.core.documents import MAX_CHANGES_PER_DOCUMENT, DocumentKind
from tidemill.core.filters import Filter
from tidemill.core.flow_progress import FlowState
from tidemill.core.operator_changes import AmendResult, CancelJobs, DeleteJobs, OperatorChange
from tidemill.core.outcomes import Success
from tidemill.core.states import LIVE, State
from tidemill.errors import StoreUnavailable
from tidemill.flows import cancel_and_retry
from tidemill.flows.advance_pass import advance_flows
from tidemill.stores.memory import MemoryStore
from tidemill.telemetry.events import FlowEnded
from tidemill.testing.kit import AsyncKit


async def die_cancelling(handle: FlowHandle, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller dies after the flow is cancelled and before its jobs are."""
    with monkeypatch.context() as patch:
        patch.setattr(cancel_and_retry, "advance_flows", AsyncMock(side_effect=StoreUnavailable("killed")))
        with pytest.raises(StoreUnavailable):
            await handle.cancel()


class TestRetry:
    async def test_a_retry_continues_from_the_failed_step(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        studio.broken.add("speak v.wav:1")
        handle = await dub(app, studio)
        await kit.run_until_idle(check=False)
        studio.broken.clear()
        studio.ran.clear()
        assert await handle.retry()
        assert await state(handle) is FlowState.RUNNING
        await kit.run_until_idle(check=False)
        assert studio.ran == ["speak v.wav:1", "mux"]
        assert (await handle.result(timeout=1))["speech"][1] == "anna says v.wav:1"
        assert not await handle.retry(), "it has not failed"

    async def test_one_job_retried_by_hand(self, app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
        studio.broken.add("extract")
        handle = await dub(app, studio)
        await kit.run_until_idle(check=False)
        assert await state(handle) is FlowState.FAILED
        studio.broken.clear()
        await app.inspect.retry("dub/v/extract/0")
        await kit.run_until_idle(check=False)
        assert await state(handle) is FlowState.DONE

    async def test_a_retry_after_a_cancel(self, app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
        handle = await dub(app, studio)
        await handle.cancel()
        assert await handle.retry()
        await kit.run_until_idle()
        assert await state(handle) is FlowState.DONE
        assert studio.ran.count("extract") == 1

    async def test_a_retry_after_a_cancel_between_two_steps(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        """No job of it is left to retry: only the flow continues."""
        flow = app.flow("dub", key="v")
        flow.add(studio.notify).after(flow.add(studio.extract, video="v"))
        handle = await flow.enqueue()
        store = app.store
        await app.inspect.retry(Filter(flow="dub/v"))
        await app.inspect.cancel("dub/v/extract/0")
        await app.inspect.retry("dub/v/extract/0")
        await kit.run_until_idle(check=False)
        assert await handle.result(timeout=1) is None
        assert await store.document_counts(DocumentKind.FLOW) == {"done": 1}

    async def test_a_retry_that_dies_before_its_jobs_are_retried_leaves_a_failed_flow(
        self, app: Tidemill, studio: Studio, kit: AsyncKit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        studio.broken.add("extract")
        handle = await dub(app, studio)
        await kit.run_until_idle(check=False)

        async def fail_before_retry(*_: object, **__: object) -> None:
            raise StoreUnavailable("killed")

        with monkeypatch.context() as patch:
            patch.setattr(cancel_and_retry, "_retry_jobs", fail_before_retry)
            with pytest.raises(StoreUnavailable):
                await handle.retry()
        await kit.run_until_idle(check=False)
        assert await state(handle) is FlowState.FAILED
        studio.broken.clear()
        assert await handle.retry()
        await kit.run_until_idle(check=False)
        assert await state(handle) is FlowState.DONE

    async def test_an_advance_before_the_jobs_are_retried_is_corrected(
        self, app: Tidemill, studio: Studio, kit: AsyncKit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        studio.broken.add("extract")
        handle = await dub(app, studio)
        await kit.run_until_idle(check=False)
        bring_back = cancel_and_retry._retry_jobs

        async def late(store: Store, ids: list[str]) -> None:
            await advance_flows(store, app.tasks, [handle.id])
            assert await state(handle) is FlowState.FAILED
            await bring_back(store, ids)

        monkeypatch.setattr(cancel_and_retry, "_retry_jobs", late)
        assert await handle.retry()
        assert await state(handle) is FlowState.RUNNING

    async def test_the_slower_of_two_retries_repeats_nothing(
        self, app: Tidemill, studio: Studio, kit: AsyncKit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Between its two calls the retry of the other process was done and finished (I18)."""
        studio.broken.add("extract")
        handle = await dub(app, studio)
        await kit.run_until_idle(check=False)
        studio.broken.clear()
        bring_back = cancel_and_retry._retry_jobs

        async def late(store: Store, ids: list[str]) -> None:
            monkeypatch.setattr(cancel_and_retry, "_retry_jobs", bring_back)
            await kit.run_until_idle(check=False)
            assert await handle.retry()
            await kit.run_until_idle(check=False)
            await bring_back(store, ids)

        monkeypatch.setattr(cancel_and_retry, "_retry_jobs", late)
        assert await handle.retry()
        await kit.run_until_idle(check=False)
        assert await state(handle) is FlowState.DONE
        assert studio.ran.count("extract") == 2, "once when it failed, and once more"

    async def test_a_deleted_job_cannot_be_retried(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        studio.broken.add("speak v.wav:1")
        handle = await dub(app, studio)
        await kit.run_until_idle(check=False)
        await app.inspect.change("dub/v/speak/1", DeleteJobs())
        await kit.run_until_idle(check=False)
        with pytest.raises(JobNotFound, match=r"its job 'dub/v/speak/1' was deleted.*another key"):
            await handle.retry()
        assert await state(handle) is FlowState.FAILED

    async def test_a_retry_of_a_flow_whose_jobs_are_all_done(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        """It was cancelled after its last job was done, and before an advance had seen that."""
        ended: list[FlowEnded] = []
        app.on(FlowEnded)(ended.append)
        flow = app.flow("dub", key="v")
        flow.add(studio.extract, video="v")
        handle = await flow.enqueue()
        (claimed,) = (await app.store.claim(claim_of("studio"))).jobs
        await app.store.settle([Settlement(claimed.id, claimed.fence, claimed.claim, Success(b'"v.wav"'))])
        assert await handle.cancel()
        assert await handle.retry()
        assert await handle.result(timeout=1) == "v.wav"
        assert [one.state for one in ended] == ["cancelled", "done"]


class TestCancel:
    async def test_i19_nothing_new_starts(self, app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
        ended: list[FlowEnded] = []
        app.on(FlowEnded)(ended.append)
        handle = await dub(app, studio)
        assert await handle.cancel("enough")
        assert [(one.state, one.reason) for one in ended] == [("cancelled", "enough")]
        await kit.run_until_idle(check=False)
        assert studio.ran == []
        job = (await app.inspect.job("dub/v/extract/0")).job
        assert (job.state, job.reason) == (State.CANCELLED, "enough")
        with pytest.raises(FlowCancelled, match="enough"):
            await handle.result(timeout=1)
        assert not await handle.cancel(), "it had ended"

    async def test_i19_the_next_advance_finishes_a_cancel(
        self, app: Tidemill, studio: Studio, kit: AsyncKit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        handle = await dub(app, studio)
        await die_cancelling(handle, monkeypatch)
        assert await state(handle) is FlowState.CANCELLED
        assert (await app.inspect.job("dub/v/extract/0")).job.state is State.READY
        await kit.run_for(2, check=False)
        assert "transcribe" not in studio.ran
        assert (await app.inspect.count(Filter(flow="dub/v", states=tuple(LIVE)))).jobs == 0

    async def test_i19_a_cancel_includes_jobs_retried_before(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        """The worklist has more changes than one read returns, and the cancel comes after them."""
        count = MAX_CHANGES_PER_DOCUMENT + 100
        studio.broken |= {f"speak {number}" for number in range(count)}
        flow = app.flow("dub", key="v")
        flow.map(studio.speak.using(delay=30), line=[str(number) for number in range(count)])
        flow.add(studio.extract.using(delay=3600), video="v")
        handle = await flow.enqueue()
        await kit.run_for(90, check=False)
        assert await state(handle) is FlowState.FAILING
        studio.ran.clear()
        await app.inspect.retry(Filter(flow="dub/v", states=(State.FAILED,)))
        assert await handle.cancel()
        await kit.run_for(10, check=False)
        assert (await state(handle), studio.ran) == (FlowState.CANCELLED, [])
        assert (await app.inspect.count(Filter(flow="dub/v", states=tuple(LIVE)))).jobs == 0

    async def test_i19_a_cancel_of_a_failed_flow_with_a_retried_job(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        """A job was retried, and no advance has run since."""
        studio.broken.add("extract")
        handle = await dub(app, studio)
        await kit.run_until_idle(check=False)
        studio.broken.clear()
        await app.inspect.retry("dub/v/extract/0")
        assert await state(handle) is FlowState.FAILED
        assert await handle.cancel("enough")
        await kit.run_until_idle(check=False)
        assert (await state(handle), studio.ran) == (FlowState.CANCELLED, ["extract"])

    async def test_a_flow_retried_meanwhile_is_not_cancelled(
        self, app: Tidemill, studio: Studio, kit: AsyncKit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A slow process continues the cancel after another one finished it and the flow was retried."""
        handle = await dub(app, studio)
        await die_cancelling(handle, monkeypatch)
        inner, cancels = MemoryStore.amend, 0

        async def late(
            self: MemoryStore, wanted: Filter, change: OperatorChange, limit: int = 1000
        ) -> AmendResult:
            nonlocal cancels
            cancels += isinstance(change, CancelJobs)
            if cancels == 1 and isinstance(change, CancelJobs):
                assert await handle.retry()
            return await inner(self, wanted, change, limit)

        monkeypatch.setattr(MemoryStore, "amend", late)
        await advance_flows(app.store, app.tasks, [handle.id])
        assert cancels == 2
        assert (await app.inspect.job("dub/v/extract/0")).job.state is State.READY
        await kit.run_until_idle()
        assert await state(handle) is FlowState.DONE

    async def test_a_retry_waits_until_the_jobs_are_cancelled(
        self, app: Tidemill, studio: Studio, kit: AsyncKit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Otherwise the process that finishes the cancel could not tell old jobs from retried ones."""
        handle = await dub(app, studio)
        await die_cancelling(handle, monkeypatch)
        assert await handle.retry()
        job = (await app.inspect.job("dub/v/extract/0")).job
        assert (job.state, job.generation) == (State.READY, 1)

    async def test_the_inspector_emits_the_end_too(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        ended: list[FlowEnded] = []
        app.on(FlowEnded)(ended.append)
        handle = await dub(app, studio)
        assert await app.inspect.cancel_flow(handle.id, reason="enough")
        assert [(one.state, one.reason) for one in ended] == [("cancelled", "enough")]

    async def test_an_unknown_flow_is_named(self, app: Tidemill, kit: AsyncKit) -> None:
        with pytest.raises(FlowNotFound, match="'dub/none'"):
            await app.flow_handle("dub/none").cancel()
