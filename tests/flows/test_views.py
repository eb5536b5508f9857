"""The view of a flow and its steps."""

from __future__ import annotations

import pytest

from tests.flows.support import Studio
from tidemill import ConfigurationError, FlowNotFound, FlowState, StepState, Tidemill
from tidemill.testing.kit import AsyncKit


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

    async def test_flows_are_found_by_name_and_state(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        for key in "abc":
            await dub(app, studio, key)
            kit.advance(1)
        await app.inspect.cancel_flow("dub/b")
        page = await app.inspect.flows(name="dub", limit=2)
        assert [view.id for view in page.flows] == ["dub/c", "dub/b"]
        rest = await app.inspect.flows(name="dub", limit=2, cursor=page.cursor)
        assert ([view.id for view in rest.flows], rest.cursor) == (["dub/a"], None)
        assert [view.id for view in (await app.inspect.flows(states=["cancelled"])).flows] == ["dub/b"]
        counts = await app.inspect.flow_counts()
        assert counts == {**dict.fromkeys(FlowState, 0), FlowState.RUNNING: 2, FlowState.CANCELLED: 1}
        assert await app.inspect.retry_flow("dub/b")
        assert (await app.inspect.flows(states=["cancelled"])).flows == ()
        with pytest.raises(ConfigurationError, match="no state 'gone'"):
            await app.inspect.flows(states=["gone"])
        with pytest.raises(FlowNotFound):
            await app.inspect.flow("dub/z")
