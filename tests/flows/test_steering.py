"""Cancelled, and taken up again: by whom, and whoever comes in between (I17 to I19)."""

from __future__ import annotations

from unittest.mock import AsyncMock

import pytest

from tests.flows.support import Studio, claim_of, dub, state
from tidemill import (
    FlowCancelled,
    FlowHandle,
    FlowNotFound,
    JobNotFound,
    Tidemill,
)
from tidemill.contract.store import Store
from tidemill.core.changes import Amended, Cancel, Change, Delete
from tidemill.core.claims import Settlement
from tidemill.core.courses import ENDS_AT_ONCE, Kind
from tidemill.core.filters import Filter
from tidemill.core.graph_state import FlowState
from tidemill.core.outcomes import Done
from tidemill.core.states import LIVE, State
from tidemill.errors import StoreUnavailable
from tidemill.flows import steering
from tidemill.flows.sweeping import sweep
from tidemill.stores.memory import MemoryStore
from tidemill.telemetry.events import FlowEnded
from tidemill.testing.kits import AsyncKit


async def die_cancelling(handle: FlowHandle, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one who cancels dies when the flow is cancelled and its jobs are not."""
    with monkeypatch.context() as patch:
        patch.setattr(steering, "sweep", AsyncMock(side_effect=StoreUnavailable("killed")))
        with pytest.raises(StoreUnavailable):
            await handle.cancel()


class TestRetry:
    async def test_from_the_failed_step_with_earlier_results_kept(
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

    async def test_one_job_brought_back_by_hand(self, app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
        studio.broken.add("extract")
        handle = await dub(app, studio)
        await kit.run_until_idle(check=False)
        assert await state(handle) is FlowState.FAILED
        studio.broken.clear()
        await app.inspect.retry("dub/v/extract/0")
        await kit.run_until_idle(check=False)
        assert await state(handle) is FlowState.DONE

    async def test_after_a_cancel(self, app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
        handle = await dub(app, studio)
        await handle.cancel()
        assert await handle.retry()
        await kit.run_until_idle()
        assert await state(handle) is FlowState.DONE
        assert studio.ran.count("extract") == 1

    async def test_cancelled_between_two_steps(self, app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
        """No job of it is left to be brought back: the flow alone goes on."""
        flow = app.flow("dub", key="v")
        flow.add(studio.notify).after(flow.add(studio.extract, video="v"))
        handle = await flow.enqueue()
        store = app.store
        await app.inspect.retry(Filter(flow="dub/v"))
        await app.inspect.cancel("dub/v/extract/0")
        await app.inspect.retry("dub/v/extract/0")
        await kit.run_until_idle(check=False)
        assert await handle.result(timeout=1) is None
        assert await store.course_counts(Kind.FLOW) == {"done": 1}

    async def test_who_dies_before_the_jobs_are_back_leaves_a_failed_flow(
        self, app: Tidemill, studio: Studio, kit: AsyncKit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        studio.broken.add("extract")
        handle = await dub(app, studio)
        await kit.run_until_idle(check=False)

        async def dies(*_: object, **__: object) -> None:
            raise StoreUnavailable("killed")

        with monkeypatch.context() as patch:
            patch.setattr(steering, "_bring_back", dies)
            with pytest.raises(StoreUnavailable):
                await handle.retry()
        await kit.run_until_idle(check=False)
        assert await state(handle) is FlowState.FAILED
        studio.broken.clear()
        assert await handle.retry()
        await kit.run_until_idle(check=False)
        assert await state(handle) is FlowState.DONE

    async def test_who_looks_before_the_jobs_are_back_has_not_the_last_word(
        self, app: Tidemill, studio: Studio, kit: AsyncKit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        studio.broken.add("extract")
        handle = await dub(app, studio)
        await kit.run_until_idle(check=False)
        bring_back = steering._bring_back

        async def late(store: Store, ids: list[str]) -> None:
            await sweep(store, app.tasks, [handle.id])
            assert await state(handle) is FlowState.FAILED
            await bring_back(store, ids)

        monkeypatch.setattr(steering, "_bring_back", late)
        assert await handle.retry()
        assert await state(handle) is FlowState.RUNNING

    async def test_of_two_who_retry_the_slower_repeats_nothing(
        self, app: Tidemill, studio: Studio, kit: AsyncKit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """I18: between its two calls the other one's retry was done and over."""
        studio.broken.add("extract")
        handle = await dub(app, studio)
        await kit.run_until_idle(check=False)
        studio.broken.clear()
        bring_back = steering._bring_back

        async def late(store: Store, ids: list[str]) -> None:
            monkeypatch.setattr(steering, "_bring_back", bring_back)
            await kit.run_until_idle(check=False)
            assert await handle.retry()
            await kit.run_until_idle(check=False)
            await bring_back(store, ids)

        monkeypatch.setattr(steering, "_bring_back", late)
        assert await handle.retry()
        await kit.run_until_idle(check=False)
        assert await state(handle) is FlowState.DONE
        assert studio.ran.count("extract") == 2, "once when it failed, and once more"

    async def test_a_job_that_was_deleted_cannot_go_again(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        studio.broken.add("speak v.wav:1")
        handle = await dub(app, studio)
        await kit.run_until_idle(check=False)
        await app.inspect.change("dub/v/speak/1", Delete())
        await kit.run_until_idle(check=False)
        with pytest.raises(JobNotFound, match=r"deleted its job 'dub/v/speak/1'.*another key"):
            await handle.retry()
        assert await state(handle) is FlowState.FAILED

    async def test_a_flow_that_had_only_to_be_told_it_is_done(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        """It was cancelled after its last job was done, and before anybody had looked."""
        told: list[FlowEnded] = []
        app.on(FlowEnded)(told.append)
        flow = app.flow("dub", key="v")
        flow.add(studio.extract, video="v")
        handle = await flow.enqueue()
        (claimed,) = (await app.store.claim(claim_of("studio"))).jobs
        await app.store.settle([Settlement(claimed.id, claimed.fence, claimed.claim, Done(b'"v.wav"'))])
        assert await handle.cancel()
        assert await handle.retry()
        assert await handle.result(timeout=1) == "v.wav"
        assert [one.state for one in told] == ["cancelled", "done"]


class TestCancel:
    async def test_i19_nothing_new_starts(self, app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
        told: list[FlowEnded] = []
        app.on(FlowEnded)(told.append)
        handle = await dub(app, studio)
        assert await handle.cancel("enough")
        assert [(one.state, one.reason) for one in told] == [("cancelled", "enough")]
        await kit.run_until_idle(check=False)
        assert studio.ran == []
        job = (await app.inspect.job("dub/v/extract/0")).job
        assert (job.state, job.reason) == (State.CANCELLED, "enough")
        with pytest.raises(FlowCancelled, match="enough"):
            await handle.result(timeout=1)
        assert not await handle.cancel(), "it had ended"

    async def test_i19_finished_by_whoever_comes_next(
        self, app: Tidemill, studio: Studio, kit: AsyncKit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        handle = await dub(app, studio)
        await die_cancelling(handle, monkeypatch)
        assert await state(handle) is FlowState.CANCELLED
        assert (await app.inspect.job("dub/v/extract/0")).job.state is State.READY
        await kit.run_for(2, check=False)
        assert "transcribe" not in studio.ran
        assert (await app.inspect.count(Filter(flow="dub/v", states=tuple(LIVE)))).jobs == 0

    async def test_i19_whatever_was_brought_back_before(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        """There is more on its agenda than anybody reads at once, and the cancel stands behind it."""
        count = ENDS_AT_ONCE + 100
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

    async def test_i19_of_one_that_had_failed_and_goes_again(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        """A job of it was brought back, and nobody has looked at the flow since."""
        studio.broken.add("extract")
        handle = await dub(app, studio)
        await kit.run_until_idle(check=False)
        studio.broken.clear()
        await app.inspect.retry("dub/v/extract/0")
        assert await state(handle) is FlowState.FAILED
        assert await handle.cancel("enough")
        await kit.run_until_idle(check=False)
        assert (await state(handle), studio.ran) == (FlowState.CANCELLED, ["extract"])

    async def test_one_that_was_taken_up_since_is_left_alone(
        self, app: Tidemill, studio: Studio, kit: AsyncKit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Somebody slow is to finish the cancel, and comes when it was finished and the flow retried."""
        handle = await dub(app, studio)
        await die_cancelling(handle, monkeypatch)
        inner, looks = MemoryStore.amend, 0

        async def late(self: MemoryStore, wanted: Filter, change: Change, limit: int = 1000) -> Amended:
            nonlocal looks
            looks += isinstance(change, Cancel)
            if looks == 1 and isinstance(change, Cancel):
                assert await handle.retry()
            return await inner(self, wanted, change, limit)

        monkeypatch.setattr(MemoryStore, "amend", late)
        await sweep(app.store, app.tasks, [handle.id])
        assert looks == 2
        assert (await app.inspect.job("dub/v/extract/0")).job.state is State.READY
        await kit.run_until_idle()
        assert await state(handle) is FlowState.DONE

    async def test_nothing_is_taken_up_before_its_jobs_are_cancelled(
        self, app: Tidemill, studio: Studio, kit: AsyncKit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Or whoever finishes the cancel could not tell one from the other."""
        handle = await dub(app, studio)
        await die_cancelling(handle, monkeypatch)
        assert await handle.retry()
        job = (await app.inspect.job("dub/v/extract/0")).job
        assert (job.state, job.generation) == (State.READY, 1)

    async def test_by_the_inspector_it_is_told_too(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        told: list[FlowEnded] = []
        app.on(FlowEnded)(told.append)
        handle = await dub(app, studio)
        assert await app.inspect.cancel_flow(handle.id, reason="enough")
        assert [(one.state, one.reason) for one in told] == [("cancelled", "enough")]

    async def test_of_a_flow_that_is_not_there(self, app: Tidemill, kit: AsyncKit) -> None:
        with pytest.raises(FlowNotFound, match="'dub/none'"):
            await app.flow_handle("dub/none").cancel()
