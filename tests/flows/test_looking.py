"""What is shown of flows, and why a step is no job yet."""

from __future__ import annotations

import pytest

from tests.flows.support import Studio
from tidemill import ConfigurationError, FlowNotFound, FlowState, JobNotFound, State, StepState, Tidemill
from tidemill.core.changes import Delete
from tidemill.inspect.causes import Code
from tidemill.testing.kits import AsyncKit


async def dub(app: Tidemill, studio: Studio, key: str = "v") -> None:
    flow = app.flow("dub", key=key)
    lines = flow.add(studio.transcribe, audio=flow.add(studio.extract, video="v"))
    flow.add(studio.mux, video="v", speech=flow.map(studio.speak, line=lines))
    await flow.enqueue()


class TestViews:
    async def test_a_flow_with_its_steps(self, app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
        await dub(app, studio)
        view = await app.inspect.flow("dub/v")
        assert (view.state, view.progress, view.key, view.created) == (FlowState.RUNNING, 0, "v", kit.now)
        steps = {step.name: step for step in view.steps}
        extract, transcribe, mux, speak = (steps[n] for n in ("extract", "transcribe", "mux", "speak"))
        assert (extract.state, extract.live, extract.count) == (StepState.RUNNING, 1, 1)
        assert (transcribe.state, transcribe.waits_for) == (StepState.WAITING, ("extract",))
        assert (mux.parents, speak.mapped, speak.count) == (("speak",), True, None)
        await kit.run_until_idle()
        view = await app.inspect.flow("dub/v")
        assert (view.state, view.progress) == (FlowState.DONE, 1)
        assert {step.name: step.done for step in view.steps} == {
            "extract": 1,
            "transcribe": 1,
            "speak": 3,
            "mux": 1,
        }

    async def test_found_by_name_and_state(self, app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
        for key in "abc":
            await dub(app, studio, key)
            kit.advance(1)
        await app.inspect.cancel_flow("dub/b")
        page = await app.inspect.flows(name="dub", limit=2)
        assert [view.id for view in page.flows] == ["dub/c", "dub/b"]
        rest = await app.inspect.flows(name="dub", limit=2, cursor=page.cursor)
        assert ([view.id for view in rest.flows], rest.cursor) == (["dub/a"], None)
        assert [view.id for view in (await app.inspect.flows(states=["cancelled"])).flows] == ["dub/b"]
        assert await app.inspect.retry_flow("dub/b")
        assert (await app.inspect.flows(states=["cancelled"])).flows == ()
        with pytest.raises(ConfigurationError, match="no state 'gone'"):
            await app.inspect.flows(states=["gone"])
        with pytest.raises(FlowNotFound):
            await app.inspect.flow("dub/z")


class TestExplain:
    async def test_a_step_that_waits_for_its_parents(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        await dub(app, studio)
        told = await app.explain("dub/v/transcribe/0")
        assert told.sentence == (
            "Waits for extract, which is running. It is step 'transcribe' of flow 'dub/v'."
        )
        assert (told.code, told.state, told.task) == (
            Code.STEPS_BEFORE,
            State.WAITING,
            studio.transcribe.name,
        )
        assert told.details["waits_for"] == ["extract"]
        assert (await app.explain("dub/v/mux/0")).sentence.startswith(
            "Waits for speak, which waits for transcribe."
        )

    async def test_a_step_that_never_will_be(self, app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
        studio.broken.add("extract")
        await dub(app, studio)
        await kit.run_until_idle(check=False)
        told = await app.explain("dub/v/mux/0")
        assert told.code is Code.FLOW_ENDED
        assert "the flow is failed: step 'extract' failed" in told.sentence

    async def test_a_join_that_waits_for_some_of_many(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        flow = app.flow("dub", key="v")
        said = flow.map(studio.speak.using(delay=60), line=["a", "b"])
        flow.add(studio.mux, video="v", speech=said)
        await flow.enqueue()
        told = await app.explain("dub/v/mux/0")
        assert told.sentence.startswith("Waits for speak, which is running (0 of 2).")

    async def test_a_job_of_a_flow(self, app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
        await dub(app, studio)
        told = await app.explain("dub/v/extract/0")
        assert told.sentence.endswith("It is job 0 of step 'extract' of flow 'dub/v'.")

    async def test_a_job_that_was_deleted_is_not_one_that_will_be(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        await dub(app, studio)
        await app.inspect.change("dub/v/extract/0", Delete())
        with pytest.raises(JobNotFound):
            await app.explain("dub/v/extract/0")

    @pytest.mark.parametrize("job", ["dub/v/nothing/0", "dub/v/extract/1", "dub/w/extract/0", "x", "a/b/c"])
    async def test_what_no_flow_will_make(
        self, app: Tidemill, studio: Studio, kit: AsyncKit, job: str
    ) -> None:
        await dub(app, studio)
        with pytest.raises(JobNotFound):
            await app.explain(job)
