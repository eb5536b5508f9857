"""An unexpected error in one flow stops neither other flows nor the worker."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from tests.flows.support import Studio, claim_of, dub, state
from tidemill import JobNotFound, Tidemill
from tidemill.core.claims import Settlement
from tidemill.core.documents import MAX_JOBS_PER_ADVANCE, Advance, DocumentKind, DocumentUpdate
from tidemill.core.filters import Filter
from tidemill.core.flow_progress import FlowState
from tidemill.core.operator_changes import DeleteJobs
from tidemill.core.outcomes import Success
from tidemill.flows.advance_pass import advance_flows
from tidemill.telemetry.events import Event, FlowEnded, MaintenanceCrashed
from tidemill.testing.kit import AsyncKit


class TestBroken:
    async def test_an_unreadable_flow_stops_no_other(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        events: list[Event] = []
        app.on(MaintenanceCrashed, FlowEnded)(events.append)
        unreadable = DocumentUpdate(name="dub", state="running", record=b"{}")
        begun = Advance(kind=DocumentKind.FLOW, id="dub/new", expected=0, next=unreadable, requeue=True)
        await app.store.advance([begun])
        flow = app.flow("dub", key="v", timeout=60)
        flow.add(studio.extract.using(delay=3600), video="v")
        await flow.enqueue()
        await kit.run_for(62, check=False)
        [ended] = [one for one in events if isinstance(one, FlowEnded)]
        assert (ended.flow, ended.state) == ("dub/v", "failed")
        broke = [one for one in events if isinstance(one, MaintenanceCrashed)]
        assert "flow 'dub/new'" in broke[0].traceback
        assert len(broke) == len({one.worker for one in broke}), "each worker tells it once"
        await kit.run_until_idle(check=False)

    async def test_a_compensation_whose_parameters_have_changed(
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
        assert "must take one argument, a StepFailure" in error.message

    async def test_a_list_that_is_shorter_after_a_retry(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        """Half of its jobs exist. No more are created while the step runs again; then one has no element."""

        @app.task(queue="studio")
        async def count() -> list[str]:
            return [str(number) for number in range(MAX_JOBS_PER_ADVANCE + 1)]

        flow = app.flow("dub", key="v")
        flow.map(studio.speak.using(delay=3600), line=flow.add(count))
        handle = await flow.enqueue()
        (claimed,) = (await app.store.claim(claim_of("studio"))).jobs
        outcome = Success(msgspec.json.encode([str(number) for number in range(MAX_JOBS_PER_ADVANCE + 2)]))
        await app.store.settle([Settlement(claimed.id, claimed.fence, claimed.claim, outcome)])
        await advance_flows(app.store, app.tasks, [handle.id])
        await app.inspect.retry("dub/v/count/0")
        await advance_flows(app.store, app.tasks, [handle.id])
        assert (await app.inspect.count(Filter(flow="dub/v"))).jobs == MAX_JOBS_PER_ADVANCE + 1
        await kit.run_for(60, check=False)
        error = (await app.inspect.job(f"dub/v/speak/{MAX_JOBS_PER_ADVANCE + 1}")).job.error
        assert error is not None
        assert (
            f"element {MAX_JOBS_PER_ADVANCE + 1} of a list that has {MAX_JOBS_PER_ADVANCE + 1}"
            in error.message
        )

    async def test_the_result_of_a_job_that_was_deleted(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        handle = await dub(app, studio)
        await kit.run_until_idle()
        await app.inspect.change("dub/v/mux/0", DeleteJobs())
        await kit.run_until_idle()
        with pytest.raises(JobNotFound, match=r"step 'mux' .* is done, but .* the job was deleted"):
            await handle.result(timeout=1)
