"""One job and several as pages, and what whoever is refused can do next."""

from __future__ import annotations

import re

import pytest

from tests.web.asgi import HOST
from tests.web.pages.visitor import Visitor, plain
from tidemill import Retry, Tidemill
from tidemill.testing.kits import AsyncKit
from tidemill.web import Asked, Role, Who
from tidemill.web.inspecting import Shown
from tidemill.web.live import Looks
from tidemill.web.pages.job import job
from tidemill.web.rendering import Renderer


async def test_the_facts_of_a_job_are_drawn_again_with_its_state(app: Tidemill, kit: AsyncKit) -> None:
    """Or a job that was retried says how it stands now, and beside it how often it had been tried before."""

    @app.task(name="describe")
    async def describe() -> None: ...

    sent = await describe.enqueue()
    asked = Asked(
        app=app,
        inspect=Shown(app),
        looks=Looks(app.clock),
        who=Who("bo", Role.VIEWER),
        path={"job": sent.id},
    )
    before = Renderer(app).blocks("", asked, await job(asked))
    await kit.run_until_idle()
    after = Renderer(app).blocks("", asked, await job(asked))
    assert "<dd>0 of 3</dd>" in before["facts"]
    assert "<dd>1 of 3</dd>" in after["facts"]


async def test_attempts_after_a_retry_are_told_from_those_before(app: Tidemill, kit: AsyncKit) -> None:
    @app.task(name="describe", retry=Retry(attempts=1))
    async def describe() -> None:
        raise LookupError("no such song")

    sent = await describe.enqueue()
    await kit.run_until_idle(check=False)
    operator = Visitor(app)
    await operator.does(f"/jobs/{sent.id}/retry")
    await kit.run_until_idle(check=False)
    shown = plain(await operator.page(f"/jobs/{sent.id}"))
    assert re.findall(r"Attempt 1 · (after retry \d+)?", shown) == ["after retry 1", ""]


async def test_of_chosen_jobs_those_that_cannot_be_changed_are_told(app: Tidemill, kit: AsyncKit) -> None:
    @app.task(name="describe")
    async def describe() -> None: ...

    ended = [await describe.enqueue(), await describe.enqueue()]
    await kit.run_until_idle()
    waits = await describe.enqueue()
    operator = Visitor(app)
    await operator.does("/bulk/cancel", [("ids", one.id) for one in ended])
    assert operator.told == "0 jobs were cancelled. 2 were in no state for it."
    await operator.does("/bulk/cancel", [("ids", one.id) for one in (*ended, waits)])
    assert operator.told == "1 job was cancelled. 2 were in no state for it."


@pytest.mark.parametrize(
    ("referer", "led"),
    [
        (f"http://{HOST}/queues/feeds?day=1", True),
        ("http://elsewhere.example/queues/feeds?day=1", False),
        (f"http://{HOST}//elsewhere.example/queues/feeds?day=1", False),
        ("", False),
    ],
)
async def test_whose_form_was_refused_is_led_back_to_it(
    app: Tidemill, kit: AsyncKit, referer: str, led: bool
) -> None:
    app.queue("feeds")
    operator = Visitor(app, referer=referer)
    refused = await operator.send("/queues/feeds/pause", {"lasts": "soon"})
    assert refused.status == 422
    assert ('href="/queues/feeds?day=1"' in refused.text) == led
    assert "elsewhere.example" not in refused.text
