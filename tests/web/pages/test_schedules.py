"""The schedule pages: next ticks, tick history, and actions."""

from __future__ import annotations

import re

import pytest

from tests.web.pages.page_client import PageClient, visible_text
from tidemill import ScheduleNotFound, Tidemill
from tidemill.testing.kit import AsyncKit
from tidemill.web import Role


@pytest.fixture
async def nightly(app: Tidemill, kit: AsyncKit) -> str:
    @app.task(name="embed", queue="embed")
    async def embed(what: str, api_key: str = "") -> None: ...

    await app.schedules.upsert("night/ly", embed.job("<b>all</b>", api_key="sk-1"), cron="0 3 * * *")
    await app.schedules.upsert("often", embed.job("some"), every=60)
    return "/schedules/night%2Fly"


async def test_schedules_are_listed_with_their_next_tick(
    app: Tidemill, admin: PageClient, kit: AsyncKit
) -> None:
    assert "app.schedule(" in await admin.page("/schedules")

    @app.task(name="embed", queue="embed")
    async def embed() -> None: ...

    await app.schedules.upsert("often", embed.job(), every=60)
    await app.schedules.upsert("seldom", embed.job(), cron="0 3 * * *")
    await app.schedules.pause("seldom", reason="holidays")
    everything = visible_text(await admin.page("/schedules"))
    assert re.search(r"All 2 .*active 1 .*paused 1", everything)
    assert "every 1 min" in everything
    assert "holidays" in everything
    paused = await admin.page("/schedules?state=paused")
    assert ("often" in visible_text(paused).split(), "seldom" in visible_text(paused).split()) == (
        False,
        True,
    )


async def test_the_page_of_a_schedule(admin: PageClient, nightly: str) -> None:
    shown = await admin.page(nightly)
    assert shown.count("<li><time") == 5
    assert "&lt;b&gt;all&lt;/b&gt;" in shown
    assert "sk-1" not in shown
    assert "No ticks yet" in shown


async def test_the_tick_history(admin: PageClient, nightly: str, kit: AsyncKit) -> None:
    await kit.run_for(200)
    shown = visible_text(await admin.page("/schedules/often"))
    assert shown.count("fired") == 3


async def test_a_schedule_is_paused_and_resumed(
    app: Tidemill, admin: PageClient, nightly: str, kit: AsyncKit
) -> None:
    assert await admin.does(f"{nightly}/pause", {"duration": "2h", "reason": "holidays"}) == nightly
    assert admin.notice == "Schedule paused."
    pause = (await app.schedules.get("night/ly")).pause
    assert pause is not None
    assert (pause.until, pause.reason) == (kit.now + 7200, "holidays")
    await admin.does(f"{nightly}/resume")
    assert (await app.schedules.get("night/ly")).pause is None
    refused = await admin.send(f"{nightly}/pause", {"duration": "soon"})
    assert (refused.status, "duration: must be a duration" in refused.text) == (422, True)


async def test_a_schedule_is_run(app: Tidemill, admin: PageClient, nightly: str) -> None:
    where = await admin.does(f"{nightly}/run")
    assert where.startswith("/jobs/night%2Fly%40")
    last = (await app.schedules.get("night/ly")).last_job
    assert last is not None
    assert await admin.does(f"{nightly}/run") == where
    assert admin.notice == "The last job is still live; it is shown here."


async def test_only_changed_settings_are_overridden(app: Tidemill, admin: PageClient, nightly: str) -> None:
    as_it_is = {"cron": "0 3 * * *", "tz": "UTC", "catch_up": "once", "overlap": "skip", "jitter": "0s"}
    assert (await admin.send(f"{nightly}/override", as_it_is)).status == 422
    await admin.does(f"{nightly}/override", {**as_it_is, "every": "2h", "reason": "too much"})
    override = (await app.schedules.get("night/ly")).override
    assert override is not None
    assert (override.changes.given(), override.by, override.reason) == ({"every": 7200.0}, "ann", "too much")
    shown = visible_text(await admin.page(nightly))
    assert "overridden by ann" in shown
    assert "every 2 h" in shown
    await admin.does(f"{nightly}/clear-override")
    assert (await app.schedules.get("night/ly")).override is None


async def test_only_an_admin_removes_a_schedule(app: Tidemill, admin: PageClient, nightly: str) -> None:
    operator = PageClient(app, Role.OPERATOR)
    page = await operator.page(nightly)
    assert ("/pause" in page, "/remove" in page, "/override" in page) == (True, False, False)
    assert (await operator.send(f"{nightly}/remove")).status == 403
    assert await admin.does(f"{nightly}/remove") == "/schedules"
    with pytest.raises(ScheduleNotFound):
        await app.schedules.get("night/ly")
    assert (await admin.get(nightly)).status == 404
