"""Failed steps: the outcome of the flow, its timeout and its retention (Q14, V8, I17)."""

from __future__ import annotations

import pytest

from tests.flows.support import Studio, dub, state
from tidemill import FlowFailed, FlowNotFound, Retention, StepFailure, Tidemill, unmapped
from tidemill.core.flow_progress import FlowState, StepState
from tidemill.core.operator_changes import CancelJobs, DeleteJobs
from tidemill.core.states import State
from tidemill.flows.advance_pass import advance_flows
from tidemill.testing.kit import AsyncKit


class TestPolicies:
    async def test_a_failed_step_fails_the_flow(self, app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
        studio.broken.add("speak v.wav:1")
        handle = await dub(app, studio)
        await kit.run_until_idle(check=False)
        assert "mux" not in studio.ran
        assert "speak v.wav:2" in studio.ran, "what is under way goes on"
        with pytest.raises(FlowFailed, match="step 'speak' failed: 1 of 3 jobs"):
            await handle.result(timeout=1)
        assert await handle.result("transcribe") == ["v.wav:0", "v.wav:1", "v.wav:2"]
        with pytest.raises(FlowFailed):
            await handle.result("speak")

    async def test_a_failed_job_that_may_fail_reads_as_none(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        studio.broken.add("speak v.wav:1")
        flow = app.flow("dub")
        lines = flow.add(studio.transcribe, audio="v.wav")
        spoken = flow.map(studio.speak, line=lines).on_failure("continue")
        flow.add(studio.mux, video="v", speech=spoken)
        handle = await flow.enqueue()
        await kit.run_until_idle(check=False)
        speech = ["anna says v.wav:0", None, "anna says v.wav:2"]
        assert await handle.result(timeout=1) == {"video": "v", "speech": speech}
        assert await handle.result(spoken) == speech

    async def test_a_plain_step_may_fail(self, app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
        studio.broken.add("extract")
        flow = app.flow("dub")
        audio = flow.add(studio.extract, video="v").on_failure("continue")
        flow.add(studio.notify, text=audio)
        handle = await flow.enqueue()
        await kit.run_until_idle(check=False)
        assert studio.received == [None]
        assert await state(handle) is FlowState.DONE

    async def test_a_failed_list_step_that_may_fail_has_no_elements(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        studio.broken.add("transcribe")
        flow = app.flow("dub")
        lines = flow.add(studio.transcribe, audio="a").on_failure("continue")
        speech = flow.map(studio.speak, line=lines)
        handle = await flow.enqueue()
        await kit.run_until_idle(check=False)
        assert await handle.result(speech) == []

    async def test_q14_another_task_compensates_a_failed_job(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        studio.broken.add("speak v.wav:1")
        flow = app.flow("dub", key="v")
        lines = flow.add(studio.transcribe, audio="v.wav")
        voice = flow.add(studio.extract, video="anna")
        spoken = flow.map(studio.speak, line=lines, voice=unmapped(voice)).on_failure(
            compensate=studio.silence
        )
        flow.add(studio.mux, video="v", speech=spoken)
        handle = await flow.enqueue()
        await kit.run_until_idle(check=False)
        speech = ["anna.wav says v.wav:0", "…", "anna.wav says v.wav:2"]
        assert await handle.result(timeout=1) == {"video": "v", "speech": speech}
        [failure] = [one for one in studio.received if isinstance(one, StepFailure)]
        assert failure == StepFailure(
            flow="dub/v",
            key="v",
            step="speak",
            index=1,
            task=studio.speak.name,
            arguments={"line": "v.wav:1", "voice": "anna.wav"},
            error=failure.error,
            attempts=1,
        )
        assert (failure.error.type, failure.error.message) == ("GiveUp", "speak v.wav:1 does not work")
        [step] = [one for one in (await handle.status()).steps if one.name == "speak"]
        assert (step.done, step.failed, step.compensated, step.state) == (2, 0, 1, StepState.DONE)

    async def test_a_failed_compensation_fails_the_flow(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        studio.broken |= {"extract", "silence extract 0"}
        flow = app.flow("dub", key="v")
        flow.add(studio.extract, video="v").on_failure(compensate=studio.silence)
        handle = await flow.enqueue()
        await kit.run_until_idle(check=False)
        assert await state(handle) is FlowState.FAILED
        studio.broken.clear()
        assert await handle.retry()
        await kit.run_until_idle(check=False)
        assert await handle.result(timeout=1) == "…"
        assert studio.ran == ["extract", "silence extract 0", "silence extract 0"]

    @pytest.mark.parametrize("change", [CancelJobs(), DeleteJobs()])
    async def test_cancelled_and_deleted_jobs_count_as_failed(
        self, app: Tidemill, studio: Studio, kit: AsyncKit, change: CancelJobs | DeleteJobs
    ) -> None:
        handle = await dub(app, studio)
        await app.inspect.change("dub/v/extract/0", change)
        await kit.run_until_idle(check=False)
        with pytest.raises(FlowFailed, match="'extract'"):
            await handle.result(timeout=1)


class TestTime:
    async def test_a_flow_over_its_timeout_fails_and_its_jobs_are_cancelled(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        flow = app.flow("dub", key="v", timeout=60)
        flow.add(studio.extract.using(delay=3600), video="v")
        handle = await flow.enqueue()
        await kit.run_for(59)
        assert await state(handle) is FlowState.RUNNING
        await kit.run_for(2, check=False)
        with pytest.raises(FlowFailed, match="within its timeout of 60 seconds"):
            await handle.result(timeout=1)
        assert (await app.inspect.job("dub/v/extract/0")).job.state is State.CANCELLED

    async def test_a_retried_flow_gets_its_whole_timeout_again(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        flow = app.flow("dub", key="v", timeout=60)
        flow.add(studio.extract.using(delay=3600), video="v")
        handle = await flow.enqueue()
        await kit.run_for(61, check=False)
        assert await handle.retry()
        assert (await handle.status()).due == kit.now + 60
        await kit.run_until_idle()
        assert await handle.result(timeout=1) == "v.wav"

    async def test_a_flow_and_its_jobs_are_pruned_together(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        """The key is remembered for one more hour (J83)."""
        app.queue("studio", keep_done=Retention(age=0))
        flow = app.flow("dub", key="v", keep=3600)
        flow.add(studio.extract, video="v")
        handle = await flow.enqueue()
        await kit.run_until_idle()
        kit.advance(3599)
        await app.store.prune()
        assert await handle.result(timeout=1) == "v.wav"
        kit.advance(1)
        await app.store.prune()
        with pytest.raises(FlowNotFound):
            await handle.status()
        again = app.flow("dub", key="v")
        again.add(studio.extract, video="v")
        assert (await again.enqueue()).existing

    async def test_a_flow_is_pruned_in_time_although_its_jobs_go_one_by_one(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        """Each pruned job marks the flow, so the flow is advanced again."""
        flow = app.flow("dub", key="v", keep=3600)
        flow.map(studio.speak, line=["a", "b", "c"])
        handle = await flow.enqueue()
        await kit.run_until_idle()
        kit.advance(3600)
        for _ in range(3):
            await app.store.prune(1)
            await advance_flows(app.store, app.tasks)
        await app.store.prune(1)
        with pytest.raises(FlowNotFound):
            await handle.status()


class TestStrangers:
    async def test_a_step_of_an_unknown_task_is_left_to_other_workers(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        handle = await dub(app, studio)
        transcribe = app.tasks.pop(studio.transcribe.name)
        await kit.run_until_idle()
        assert await state(handle) is FlowState.RUNNING
        assert studio.ran == ["extract"]
        app.tasks[transcribe.name] = transcribe
        await kit.run_until_idle()
        assert await state(handle) is FlowState.DONE

    async def test_other_steps_do_not_wait_for_an_unknown_task(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        """No worker knows all tasks of the flow: each creates the jobs it knows."""
        flow = app.flow("dub", key="v")
        first = flow.add(studio.notify)
        flow.add(studio.extract, video="v").after(first)
        flow.add(studio.transcribe, audio="a").after(first)
        handle = await flow.enqueue()
        extract = app.tasks.pop(studio.extract.name)
        await kit.run_until_idle()
        assert studio.ran == ["notify", "transcribe"]
        states = {step.name: step.state for step in (await handle.status()).steps}
        assert states["transcribe"] is StepState.DONE
        app.tasks[extract.name] = extract
        await kit.run_until_idle()
        assert await state(handle) is FlowState.DONE
