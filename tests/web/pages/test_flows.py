"""Flows as pages: found, drawn, cancelled, retried."""

from __future__ import annotations

import re

import pytest

from tests.flows.support import Studio
from tests.web.pages.visitor import Visitor, plain
from tidemill import FlowState, Tidemill
from tidemill.core.graph_state import StepState
from tidemill.flows.views import FlowView, StepView
from tidemill.seam.roles import Role
from tidemill.testing.kits import AsyncKit
from tidemill.web.flow_picture import MOST_STEPS, cut, picture_of

HARM = "<script>alert(1)</script>"


@pytest.fixture
def studio(app: Tidemill) -> Studio:
    return Studio(app)


@pytest.fixture
def visitor(app: Tidemill, kit: AsyncKit) -> Visitor:
    return Visitor(app)


async def dub(app: Tidemill, studio: Studio, key: str) -> str:
    flow = app.flow("dub", key=key)
    lines = flow.add(studio.transcribe, audio=flow.add(studio.extract, video="v"))
    flow.add(studio.mux, video="v", speech=flow.map(studio.speak, line=lines))
    return (await flow.enqueue()).id


async def test_they_are_found_by_state_and_name(
    app: Tidemill, studio: Studio, kit: AsyncKit, visitor: Visitor
) -> None:
    assert "flow.map(speak" in await visitor.page("/flows")
    await dub(app, studio, "a")
    await kit.run_until_idle()
    await dub(app, studio, "b")
    everything = await visitor.page("/flows")
    assert ("dub/a" in everything, "dub/b" in everything) == (True, True)
    running = await visitor.page("/flows?state=running&name=dub")
    assert ("dub/a" in running, "dub/b" in running) == (False, True)
    assert re.search(r"All 2 .*running 1 .*done 1", plain(running))
    assert "No flow matches" in await visitor.page("/flows?name=song")
    assert (await visitor.get("/flows?state=gone")).status == 422


async def test_a_page_goes_on_where_the_last_ended(
    app: Tidemill, studio: Studio, kit: AsyncKit, visitor: Visitor
) -> None:
    for number in range(51):
        await dub(app, studio, f"film-{number:02}")
        kit.advance(1)
    first = await visitor.page("/flows")
    [following] = re.findall(r'href="(/flows\?cursor=[^"]+)"', first)
    assert ("film-50" in first, "film-00" in first) == (True, False)
    last = await visitor.page(following)
    assert ("film-50" in last, "film-00" in last) == (False, True)


async def test_it_is_drawn_with_what_each_step_does(
    app: Tidemill, studio: Studio, kit: AsyncKit, visitor: Visitor
) -> None:
    id_ = (await dub(app, studio, "x/y")).replace("/", "%2F")
    before = await visitor.page(f"/flows/{id_}")
    assert before.count('class="edge open"') == 3
    assert re.search(r"<title>extract · \S+ · ready</title>", before)
    assert re.search(r"<title>mux · \S+ · waiting · after speak</title>", before)
    assert f'href="/jobs/{id_}%2Fextract%2F0"' in before
    assert "No living worker serves the queue" in plain(before)
    await kit.run_until_idle()
    after = await visitor.page(f"/flows/{id_}")
    assert after.count('class="edge passed"') == 3
    assert re.search(r"<title>speak · \S+ · done · 3 of 3 jobs done</title>", after)
    assert after.count('class="pile"') == 2
    assert 'href="#step-' in before
    assert f'href="/jobs?flow={id_}&amp;id={id_}%2Fspeak%2F"' in after
    assert "4 of 4 steps done" in after
    [listed] = re.findall(r'<svg class="beads".*?</svg>', await visitor.page("/flows"), re.DOTALL)
    assert " ".join(listed.split()) in " ".join(after.split())


async def test_it_is_cancelled_and_retried(
    app: Tidemill, studio: Studio, kit: AsyncKit, visitor: Visitor
) -> None:
    studio.broken.add("extract")
    id_ = await dub(app, studio, "a")
    await kit.run_until_idle(check=False)
    failed = await visitor.page("/flows/dub%2Fa")
    assert "step &#39;extract&#39; failed" in failed
    assert "/flows/dub%2Fa/retry" in failed
    studio.broken.clear()
    assert await visitor.does("/flows/dub%2Fa/retry") == "/flows/dub%2Fa"
    assert visitor.told == "What failed goes again, and the flow from there."
    await visitor.does("/flows/dub%2Fa/cancel", {"reason": HARM})
    view = await app.inspect.flow(id_)
    assert (view.state, view.reason) == (FlowState.CANCELLED, HARM)
    shown = await visitor.page("/flows/dub%2Fa")
    assert HARM not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
    await visitor.does("/flows/dub%2Fa/cancel")
    assert visitor.told == "The flow had ended already; nothing was changed."


async def test_who_may_only_look_has_nothing_to_press(app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
    await dub(app, studio, "a")
    viewer = Visitor(app, Role.VIEWER)
    assert "/cancel" not in await viewer.page("/flows/dub%2Fa")
    assert (await viewer.send("/flows/dub%2Fa/cancel")).status == 403
    assert (await viewer.get("/flows/dub%2Fz")).status == 404


def test_what_nobody_could_read_is_not_drawn() -> None:
    steps = [
        StepView(
            name=f"s{at}",
            task="t",
            queue="q",
            state=StepState.WAITING,
            mapped=False,
            on_failure="fail",  # type: ignore[arg-type]
        )
        for at in range(MOST_STEPS + 1)
    ]
    flow = FlowView(
        id="f", name="f", key=None, state=FlowState.RUNNING, progress=0, created=0, steps=tuple(steps)
    )
    assert picture_of(flow, {}) is None
    assert cut("a name that is too long for its box", 21) == "a name that is too l…"
    assert cut("提取音频并且转写全部内容", 21) == "提取音频并且转写全…"
