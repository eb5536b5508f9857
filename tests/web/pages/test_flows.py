"""The flow pages: find, diagram, cancel, retry."""

from __future__ import annotations

import re

import pytest

from tests.flows.support import Studio
from tests.web.pages.page_client import PageClient, visible_text
from tidemill import FlowState, Tidemill
from tidemill.core.flow_progress import StepState
from tidemill.flows.views import FlowView, StepView
from tidemill.http_routes.routes import Role
from tidemill.testing.kit import AsyncKit
from tidemill.web.flow_diagram import MAX_STEPS, build_flow_diagram, truncate_to_width

HARM = "<script>alert(1)</script>"


@pytest.fixture
def studio(app: Tidemill) -> Studio:
    return Studio(app)


@pytest.fixture
def visitor(app: Tidemill, kit: AsyncKit) -> PageClient:
    return PageClient(app)


async def dub(app: Tidemill, studio: Studio, key: str) -> str:
    flow = app.flow("dub", key=key)
    lines = flow.add(studio.transcribe, audio=flow.add(studio.extract, video="v"))
    flow.add(studio.mux, video="v", speech=flow.map(studio.speak, line=lines))
    return (await flow.enqueue()).id


async def test_flows_are_found_by_state_and_name(
    app: Tidemill, studio: Studio, kit: AsyncKit, visitor: PageClient
) -> None:
    assert "flow.map(speak" in await visitor.page("/flows")
    await dub(app, studio, "a")
    await kit.run_until_idle()
    await dub(app, studio, "b")
    everything = await visitor.page("/flows")
    assert ("dub/a" in everything, "dub/b" in everything) == (True, True)
    running = await visitor.page("/flows?state=running&name=dub")
    assert ("dub/a" in running, "dub/b" in running) == (False, True)
    assert re.search(r"All 2 .*running 1 .*done 1", visible_text(running))
    assert "No flow matches" in await visitor.page("/flows?name=song")
    assert (await visitor.get("/flows?state=gone")).status == 422


async def test_the_next_page_continues_after_the_last(
    app: Tidemill, studio: Studio, kit: AsyncKit, visitor: PageClient
) -> None:
    for number in range(51):
        await dub(app, studio, f"film-{number:02}")
        kit.advance(1)
    first = await visitor.page("/flows")
    [following] = re.findall(r'href="(/flows\?cursor=[^"]+)"', first)
    assert ("film-50" in first, "film-00" in first) == (True, False)
    last = await visitor.page(following)
    assert ("film-50" in last, "film-00" in last) == (False, True)


async def test_the_diagram_shows_every_step(
    app: Tidemill, studio: Studio, kit: AsyncKit, visitor: PageClient
) -> None:
    id_ = (await dub(app, studio, "x/y")).replace("/", "%2F")
    before = await visitor.page(f"/flows/{id_}")
    assert before.count('class="edge open"') == 3
    assert re.search(r"<title>extract · \S+ · ready</title>", before)
    assert re.search(r"<title>mux · \S+ · waiting · after speak</title>", before)
    assert f'href="/jobs/{id_}%2Fextract%2F0"' in before
    assert "No living worker serves the queue" in visible_text(before)
    await kit.run_until_idle()
    after = await visitor.page(f"/flows/{id_}")
    assert after.count('class="edge passed"') == 3
    assert re.search(r"<title>speak · \S+ · done · 3 of 3 jobs done</title>", after)
    assert after.count('class="stacked"') == 2
    assert 'href="#step-' in before
    assert f'href="/jobs?flow={id_}&amp;id={id_}%2Fspeak%2F"' in after
    assert "4 of 4 steps done" in after
    [listed] = re.findall(r'<svg class="step-bar".*?</svg>', await visitor.page("/flows"), re.DOTALL)
    assert " ".join(listed.split()) in " ".join(after.split())


async def test_a_flow_is_cancelled_and_retried(
    app: Tidemill, studio: Studio, kit: AsyncKit, visitor: PageClient
) -> None:
    studio.broken.add("extract")
    id_ = await dub(app, studio, "a")
    await kit.run_until_idle(check=False)
    failed = await visitor.page("/flows/dub%2Fa")
    assert "step &#39;extract&#39; failed" in failed
    assert "/flows/dub%2Fa/retry" in failed
    studio.broken.clear()
    assert await visitor.does("/flows/dub%2Fa/retry") == "/flows/dub%2Fa"
    assert visitor.notice == "Failed steps retried."
    await visitor.does("/flows/dub%2Fa/cancel", {"reason": HARM})
    view = await app.inspect.flow(id_)
    assert (view.state, view.reason) == (FlowState.CANCELLED, HARM)
    shown = await visitor.page("/flows/dub%2Fa")
    assert HARM not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
    await visitor.does("/flows/dub%2Fa/cancel")
    assert visitor.notice == "The flow had already ended; nothing changed."


async def test_a_viewer_has_no_buttons(app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
    await dub(app, studio, "a")
    viewer = PageClient(app, Role.VIEWER)
    assert "/cancel" not in await viewer.page("/flows/dub%2Fa")
    assert (await viewer.send("/flows/dub%2Fa/cancel")).status == 403
    assert (await viewer.get("/flows/dub%2Fz")).status == 404


def test_a_flow_that_is_too_large_is_not_drawn() -> None:
    steps = [
        StepView(
            name=f"s{at}",
            task="t",
            queue="q",
            state=StepState.WAITING,
            mapped=False,
            on_failure="fail",  # type: ignore[arg-type]
        )
        for at in range(MAX_STEPS + 1)
    ]
    flow = FlowView(
        id="f", name="f", key=None, state=FlowState.RUNNING, progress=0, created=0, steps=tuple(steps)
    )
    assert build_flow_diagram(flow, {}) is None
    assert truncate_to_width("a name that is too long for its box", 21) == "a name that is too l…"
    assert truncate_to_width("提取音频并且转写全部内容", 21) == "提取音频并且转写全…"
