"""The job pages, and the way back from a refused form."""

from __future__ import annotations

import re

import pytest

from tests.web.asgi_client import HOST
from tests.web.pages.page_client import PageClient, visible_text
from tidemill import Retry, Tidemill
from tidemill.testing.kit import AsyncKit
from tidemill.web import Role, RouteRequest, User
from tidemill.web.live_views import LiveViews
from tidemill.web.pages.jobs import job_page
from tidemill.web.redacted_inspector import RedactedInspector
from tidemill.web.renderer import Renderer


async def test_the_details_of_a_job_update_with_its_state(app: Tidemill, kit: AsyncKit) -> None:
    """A retried job must not show its new state beside its old number of attempts."""

    @app.task(name="describe")
    async def describe() -> None: ...

    sent = await describe.enqueue()
    request = RouteRequest(
        app=app,
        inspect=RedactedInspector(app),
        live_views=LiveViews(app.clock),
        user=User("bo", Role.VIEWER),
        path={"job": sent.id},
    )
    before = Renderer(app).blocks("", request, await job_page(request))
    await kit.run_until_idle()
    after = Renderer(app).blocks("", request, await job_page(request))
    assert "<dd>0 of 3</dd>" in before["facts"]
    assert "<dd>1 of 3</dd>" in after["facts"]


async def test_attempts_before_and_after_a_retry_differ(app: Tidemill, kit: AsyncKit) -> None:
    @app.task(name="describe", retry=Retry(attempts=1))
    async def describe() -> None:
        raise LookupError("no such song")

    sent = await describe.enqueue()
    await kit.run_until_idle(check=False)
    operator = PageClient(app)
    await operator.does(f"/jobs/{sent.id}/retry")
    await kit.run_until_idle(check=False)
    shown = visible_text(await operator.page(f"/jobs/{sent.id}"))
    assert re.findall(r"Attempt 1 · (after retry \d+)?", shown) == ["after retry 1", ""]


async def test_skipped_jobs_of_a_selection_are_reported(app: Tidemill, kit: AsyncKit) -> None:
    @app.task(name="describe")
    async def describe() -> None: ...

    ended = [await describe.enqueue(), await describe.enqueue()]
    await kit.run_until_idle()
    waits = await describe.enqueue()
    operator = PageClient(app)
    await operator.does("/bulk/cancel", [("ids", one.id) for one in ended])
    assert operator.notice == "0 jobs cancelled. 2 skipped: wrong state."
    await operator.does("/bulk/cancel", [("ids", one.id) for one in (*ended, waits)])
    assert operator.notice == "1 job cancelled. 2 skipped: wrong state."


@pytest.mark.parametrize(
    ("referer", "led"),
    [
        (f"http://{HOST}/queues/feeds?day=1", True),
        ("http://elsewhere.example/queues/feeds?day=1", False),
        (f"http://{HOST}//elsewhere.example/queues/feeds?day=1", False),
        ("", False),
    ],
)
async def test_a_refused_form_links_back_to_its_page(
    app: Tidemill, kit: AsyncKit, referer: str, led: bool
) -> None:
    app.queue("feeds")
    operator = PageClient(app, referer=referer)
    refused = await operator.send("/queues/feeds/pause", {"duration": "soon"})
    assert refused.status == 422
    assert ('href="/queues/feeds?day=1"' in refused.text) == led
    assert "elsewhere.example" not in refused.text
