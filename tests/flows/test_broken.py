"""What nobody expected of a flow stops neither the others nor the worker."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from tests.flows.support import Studio, claim_of, dub, state
from tidemill import (
    JobNotFound,
    Tidemill,
)
from tidemill.core.changes import Delete
from tidemill.core.claims import Settlement
from tidemill.core.courses import JOBS_AT_ONCE, Advance, Kind, Next
from tidemill.core.filters import Filter
from tidemill.core.graph_state import FlowState
from tidemill.core.outcomes import Done
from tidemill.flows.sweeping import sweep
from tidemill.telemetry.events import ChoreBroke, Event, FlowEnded
from tidemill.testing.kits import AsyncKit


class TestBroken:
    async def test_one_that_cannot_be_read_stops_no_other(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        told: list[Event] = []
        app.on(ChoreBroke, FlowEnded)(told.append)
        unreadable = Next(name="dub", state="running", record=b"{}")
        begun = Advance(kind=Kind.FLOW, id="dub/new", expected=0, next=unreadable, again=True)
        await app.store.advance([begun])
        flow = app.flow("dub", key="v", timeout=60)
        flow.add(studio.extract.using(delay=3600), video="v")
        await flow.enqueue()
        await kit.run_for(62, check=False)
        [ended] = [one for one in told if isinstance(one, FlowEnded)]
        assert (ended.flow, ended.state) == ("dub/v", "failed")
        broke = [one for one in told if isinstance(one, ChoreBroke)]
        assert "flow 'dub/new'" in broke[0].traceback
        assert len(broke) == len({one.worker for one in broke}), "each worker tells it once"
        await kit.run_until_idle(check=False)

    async def test_a_compensation_that_takes_something_else_by_now(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        studio.broken.add("extract")
        flow = app.flow("dub", key="v")
        flow.add(studio.extract, video="v").on_failure(compensate=studio.silence)
        handle = await flow.enqueue()
        app.tasks[studio.silence.name] = dataclasses.replace(
            studio.silence.definition, payload=studio.mux.definition.payload
        )
        await kit.run_until_idle(check=False)
        assert await state(handle) is FlowState.FAILED
        error = (await app.inspect.job("dub/v/extract!/0")).job.error
        assert error is not None
        assert "must take one argument, a Failure" in error.message

    async def test_a_list_that_is_shorter_when_it_is_made_again(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        """Half of its jobs are made. While it runs again no more are, and then one has no element."""

        @app.task(queue="studio")
        async def count() -> list[str]:
            return [str(number) for number in range(JOBS_AT_ONCE + 1)]

        flow = app.flow("dub", key="v")
        flow.map(studio.speak.using(delay=3600), line=flow.add(count))
        handle = await flow.enqueue()
        (claimed,) = (await app.store.claim(claim_of("studio"))).jobs
        outcome = Done(msgspec.json.encode([str(number) for number in range(JOBS_AT_ONCE + 2)]))
        await app.store.settle([Settlement(claimed.id, claimed.fence, claimed.claim, outcome)])
        await sweep(app.store, app.tasks, [handle.id])
        await app.inspect.retry("dub/v/count/0")
        await sweep(app.store, app.tasks, [handle.id])
        assert (await app.inspect.count(Filter(flow="dub/v"))).jobs == JOBS_AT_ONCE + 1
        await kit.run_for(60, check=False)
        error = (await app.inspect.job(f"dub/v/speak/{JOBS_AT_ONCE + 1}")).job.error
        assert error is not None
        assert f"element {JOBS_AT_ONCE + 1} of a list that has {JOBS_AT_ONCE + 1}" in error.message

    async def test_the_result_of_a_job_that_was_deleted(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        handle = await dub(app, studio)
        await kit.run_until_idle()
        await app.inspect.change("dub/v/mux/0", Delete())
        await kit.run_until_idle()
        with pytest.raises(JobNotFound, match=r"step 'mux' .* is done, but .* somebody deleted the job"):
            await handle.result(timeout=1)
