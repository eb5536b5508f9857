"""Schedules as pages: coming ticks, what became of the last ones, and what is done to them."""

from __future__ import annotations

import re

import pytest

from tests.web.pages.visitor import Visitor, plain
from tidemill import ScheduleNotFound, Tidemill
from tidemill.testing.kits import AsyncKit
from tidemill.web import Role


@pytest.fixture
async def nightly(app: Tidemill, kit: AsyncKit) -> str:
    @app.task(name="embed", queue="embed")
    async def embed(what: str, api_key: str = "") -> None: ...

    await app.schedules.upsert("night/ly", embed.job("<b>all</b>", api_key="sk-1"), cron="0 3 * * *")
    await app.schedules.upsert("often", embed.job("some"), every=60)
    return "/schedules/night%2Fly"


async def test_they_are_listed_with_their_next_tick(app: Tidemill, admin: Visitor, kit: AsyncKit) -> None:
    assert "app.schedule(" in await admin.page("/schedules")

    @app.task(name="embed", queue="embed")
    async def embed() -> None: ...

    await app.schedules.upsert("often", embed.job(), every=60)
    await app.schedules.upsert("seldom", embed.job(), cron="0 3 * * *")
    await app.schedules.pause("seldom", reason="holidays")
    everything = plain(await admin.page("/schedules"))
    assert re.search(r"All 2 .*active 1 .*paused 1", everything)
    assert "every 1 min" in everything
    assert "holidays" in everything
    paused = await admin.page("/schedules?state=paused")
    assert ("often" in plain(paused).split(), "seldom" in plain(paused).split()) == (False, True)


async def test_a_page_of_one(admin: Visitor, nightly: str) -> None:
    shown = await admin.page(nightly)
    assert shown.count("<li><time") == 5
    assert "&lt;b&gt;all&lt;/b&gt;" in shown
    assert "sk-1" not in shown
    assert "No tick has come yet" in shown


async def test_what_became_of_its_ticks(admin: Visitor, nightly: str, kit: AsyncKit) -> None:
    await kit.run_for(200)
    shown = plain(await admin.page("/schedules/often"))
    assert shown.count("fired") == 3


async def test_it_is_paused_and_resumed(app: Tidemill, admin: Visitor, nightly: str, kit: AsyncKit) -> None:
    assert await admin.does(f"{nightly}/pause", {"lasts": "2h", "reason": "holidays"}) == nightly
    assert admin.told == "The schedule is paused."
    pause = (await app.schedules.get("night/ly")).pause
    assert pause is not None
    assert (pause.until, pause.reason) == (kit.now + 7200, "holidays")
    await admin.does(f"{nightly}/resume")
    assert (await app.schedules.get("night/ly")).pause is None
    refused = await admin.send(f"{nightly}/pause", {"lasts": "soon"})
    assert (refused.status, "lasts: must be a duration" in refused.text) == (422, True)


async def test_it_is_run(app: Tidemill, admin: Visitor, nightly: str) -> None:
    where = await admin.does(f"{nightly}/run")
    assert where.startswith("/jobs/night%2Fly%40")
    last = (await app.schedules.get("night/ly")).last_job
    assert last is not None
    assert await admin.does(f"{nightly}/run") == where
    assert admin.told == "Its last job is still live; this is it."


async def test_only_what_is_changed_is_overridden(app: Tidemill, admin: Visitor, nightly: str) -> None:
    as_it_is = {"cron": "0 3 * * *", "tz": "UTC", "catch_up": "once", "overlap": "skip", "jitter": "0s"}
    assert (await admin.send(f"{nightly}/override", as_it_is)).status == 422
    await admin.does(f"{nightly}/override", {**as_it_is, "every": "2h", "reason": "too much"})
    override = (await app.schedules.get("night/ly")).override
    assert override is not None
    assert (override.changes.given(), override.by, override.reason) == ({"every": 7200.0}, "ann", "too much")
    shown = plain(await admin.page(nightly))
    assert "overridden by ann" in shown
    assert "every 2 h" in shown
    await admin.does(f"{nightly}/follow")
    assert (await app.schedules.get("night/ly")).override is None


async def test_it_is_removed_by_an_admin_only(app: Tidemill, admin: Visitor, nightly: str) -> None:
    operator = Visitor(app, Role.OPERATOR)
    page = await operator.page(nightly)
    assert ("/pause" in page, "/remove" in page, "/override" in page) == (True, False, False)
    assert (await operator.send(f"{nightly}/remove")).status == 403
    assert await admin.does(f"{nightly}/remove") == "/schedules"
    with pytest.raises(ScheduleNotFound):
        await app.schedules.get("night/ly")
    assert (await admin.get(nightly)).status == 404
