"""Overview, queues, jobs, dead letters and workers as somebody uses them."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator

import pytest

from tests.web.asgi import ask
from tests.web.pages.visitor import Visitor, plain
from tests.web.world import HOUR, World
from tidemill import Filter, Retention, State, Tidemill
from tidemill.core.refusals import Reason, Refusal
from tidemill.core.spending import Observation
from tidemill.seam.roles import Role, Who
from tidemill.web import dashboard


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World("memory://")
    async with world.app:
        await world.begin()
        yield world


@pytest.fixture
def admin(world: World) -> Visitor:
    return Visitor(world.app, Role.ADMIN)


async def state_of(world: World, id: str) -> State:  # noqa: A002 - the word for it
    return (await world.app.inspect.job(id)).job.state


async def test_numbers_on_pages_equal_a_recount(world: World, admin: Visitor) -> None:
    jobs = [job async for job in world.app.inspect.each(Filter(states=tuple(State)))]
    overview = plain(await admin.page("/"))
    for state in (State.READY, State.SCHEDULED, State.FAILED, State.DONE):
        many = sum(job.state is state for job in jobs)
        assert many
        assert f"{state} {many}" in overview
    of_queue = plain(await admin.page("/queues/queue"))
    for state in State:
        assert f"{state} {sum(job.state is state and job.queue == 'queue' for job in jobs)}" in of_queue
    tabs = plain(await admin.page("/jobs?queue=queue"))
    assert f"done {sum(job.state is State.DONE and job.queue == 'queue' for job in jobs)}" in tabs


async def test_what_needs_somebody_comes_first(world: World, admin: Visitor) -> None:
    await world.app.inspect.pause("queue", reason="inventory")
    refusal = Refusal(reason=Reason.DAY_QUOTA, text="come back tomorrow")
    await world.app.store.observe([Observation(pool="pool", refusal=refusal)])
    said = plain(re.split("</section>", await admin.page("/"))[0])
    assert said.index("no worker asking") < said.index("paused queue inventory")
    assert said.index("refused pool come back tomorrow") < said.index("paused queue inventory")
    assert "closed pool reason" in said
    assert "failed queue 1 dead letter" in said


async def test_results_that_were_dropped_early_are_on_the_overview_and_in_the_api(
    world: World, admin: Visitor
) -> None:
    kept = Retention(age=3600.0, count=0)
    await world.app.inspect.override("queue", by="ann", keep_done=kept)
    early = (await world.app.store.prune()).early["queue"]
    said = plain(re.split("</section>", await admin.page("/"))[0])
    assert f"results dropped queue {early} ended job" in said
    (queue,) = (one for one in (await world.app.inspect.overview()).queues if one.name == "queue")
    assert queue.dropped_early == early > 0


@pytest.mark.parametrize("path", ["/", "/queues", "/jobs", "/dead-letters", "/workers"])
async def test_a_page_without_anything_teaches(path: str) -> None:
    app = Tidemill("memory://")
    async with app:
        shown = await Visitor(app, Role.VIEWER).page(path)
    assert 'class="empty"' in shown
    assert "<pre" in shown


async def test_it_speaks_the_language_of_the_browser(world: World) -> None:
    chinese = await Visitor(world.app, Role.VIEWER, "zh-CN,zh;q=0.9,en;q=0.8").page("/queues/queue")
    assert '<html lang="zh"' in chinese
    assert "过去 24 小时" in chinese


async def test_a_queue_is_paused_until_a_time_and_goes_on(world: World, admin: Visitor) -> None:
    assert await admin.does("/queues/queue/pause", {"lasts": "30m", "reason": "inventory"}) == "/queues/queue"
    pause = (await world.app.inspect.queue("queue")).pause
    assert pause is not None
    assert pause.until == pytest.approx(world.app.clock.wall() + 1800, abs=5)
    assert "inventory" in await admin.page("/queues/queue")
    await admin.does("/queues/queue/resume")
    assert (await world.app.inspect.queue("queue")).pause is None
    assert admin.told == "The queue goes on."


async def test_settings_are_overridden_and_taken_back(world: World, admin: Visitor) -> None:
    await admin.does("/queues/queue/follow")
    holds = (await world.app.inspect.queue("queue")).settings
    form = {
        "weight": "4",
        "concurrency": "2",
        "crash_limit": str(holds.crash_limit),
        **{f"{name}_age": f"{getattr(holds, name).age:.0f}s" for name in ("keep_done", "keep_failed")},
        **{f"{name}_count": str(getattr(holds, name).count) for name in ("keep_done", "keep_failed")},
        "reason": "a campaign",
        "lasts": "2h",
    }
    await admin.does("/queues/queue/override", form)
    override = (await world.app.inspect.queue("queue")).override
    assert override is not None
    assert set(override.changes.given()) == {"weight", "concurrency", "keep_cancelled"}
    assert (override.by, override.reason) == ("ann", "a campaign")
    assert override.until == pytest.approx(world.app.clock.wall() + 2 * HOUR, abs=5)
    assert "Overridden by ann" in plain(await admin.page("/queues/queue"))


@pytest.mark.parametrize("field", ["lasts", "keep_done_age"])
async def test_what_is_no_duration_is_refused_by_its_field(world: World, admin: Visitor, field: str) -> None:
    refused = await admin.send("/queues/queue/override", {field: "2 hours"})
    assert refused.status == 422
    assert f"{field}: must be a duration, such as 90s" in plain(refused.text)


async def test_a_queue_is_emptied_by_its_name_only(world: World, admin: Visitor) -> None:
    refused = await admin.send("/queues/queue/empty", {"confirm": "queues"})
    assert refused.status == 422
    assert "confirm: must be the name of the queue" in plain(refused.text).replace("&#39;", "'")
    await admin.does("/queues/queue/empty", {"confirm": "queue"})
    assert sum((await world.app.inspect.queue("queue")).counts.values()) == 0


async def test_a_day_of_a_queue_adds_up(world: World, admin: Visitor) -> None:
    chart = json.loads((await admin.get("/queues/queue/history")).body)
    view = await world.app.inspect.queue("queue")
    lines = {line["name"]: line["values"] for line in chart["lines"]}
    assert sum(lines["done"]) + sum(lines["failed"]) == view.processed > 0
    assert {len(values) for values in lines.values()} == {len(chart["at"])}


async def test_jobs_are_found_by_what_is_known_of_them(world: World, admin: Visitor) -> None:
    ready, failed = world.ready, world.failed
    for query, one, other in (
        ("state=failed", failed, ready),
        ("state=ready&queue=queue&task=works", ready, failed),
        ("text=LookupError", failed, ready),
        ("field=what.name%3Dargument&state=ready", ready, failed),
        (f"id={failed[:30]}{failed[30:]}", failed, ready),
        ("key=key&tag=tag&state=failed&within=hour", failed, ready),
    ):
        shown = await admin.page(f"/jobs?{query}")
        assert (f"job-{one}" in shown, f"job-{other}" in shown) == (True, False), query


async def test_pages_of_jobs_follow_each_other(world: World, admin: Visitor) -> None:
    await world.app.enqueue_many([world.works.job({"name": str(number)}) for number in range(70)])
    seen: list[str] = []
    path = "/jobs?state=ready&queue=queue"
    while path:
        shown = await admin.page(path)
        seen += re.findall(r'<tr id="job-([^"]+)"', shown)
        following = re.search(r'href="([^"]+)" rel="next"', shown)
        path = following[1].replace("&amp;", "&") if following else ""
    assert len(seen) == len(set(seen)) == (await world.app.inspect.queue("queue")).counts[State.READY]


async def test_chosen_jobs_are_changed_and_no_others(world: World, admin: Visitor) -> None:
    ready, done = world.ready, world.done
    await admin.does("/bulk/reprioritise", [("ids", ready), ("ids", done), ("priority", "1")])
    assert admin.told == "1 job has the new priority. 1 was in no state for it."
    await admin.does("/bulk/cancel", {"ids": ready})
    assert await state_of(world, ready) is State.CANCELLED
    assert (await admin.send("/bulk/reprioritise", {"ids": done})).status == 422
    await admin.does("/bulk/delete", {"ids": ready})
    assert (await admin.get(f"/jobs/{ready}")).status == 404


async def test_all_that_match_are_changed_when_as_many_were_confirmed(world: World, admin: Visitor) -> None:
    await world.app.enqueue_many([world.works.job({"name": "many"}) for _ in range(20)])
    form = {"every": "true", "queue": "queue", "state": "ready"}
    refused = await admin.send("/bulk/cancel", {**form, "confirm": "5"})
    assert refused.status == 409
    ready = (await world.app.inspect.queue("queue")).counts[State.READY]
    assert ready > 20
    assert (
        await admin.does("/bulk/cancel", {**form, "confirm": str(ready)}) == "/jobs?state=ready&queue=queue"
    )
    assert (await world.app.inspect.queue("queue")).counts[State.READY] == 0
    assert (await admin.send("/bulk/cancel", {"every": "true", "confirm": "99"})).status == 422


async def test_a_job_tells_why_it_waits_and_what_it_did(world: World, admin: Visitor) -> None:
    failed = plain(await admin.page(f"/jobs/{world.failed}"))
    assert "LookupError" in failed
    assert "Traceback (most recent call last)" in failed
    done = plain(await admin.page(f"/jobs/{world.done}"))
    for part in ("checkpoint", "log", "argument", "result"):
        assert part in done
    [asking] = [job async for job in world.app.inspect.each(Filter(queue="asking"))]
    why = plain(await admin.page(f"/jobs/{asking.id}"))
    assert "Queue paused" in why
    assert "Pool closed" in why


async def test_a_job_is_retried_cancelled_and_deleted(world: World, admin: Visitor) -> None:
    failed = world.failed
    assert await admin.does(f"/jobs/{failed}/retry") == f"/jobs/{failed}"
    assert await state_of(world, failed) is State.READY
    await admin.does(f"/jobs/{failed}/reprioritise", {"priority": "2"})
    await admin.does(f"/jobs/{failed}/archive")
    assert await state_of(world, failed) is State.FAILED
    await admin.does(f"/jobs/{failed}/retry")
    await admin.does(f"/jobs/{failed}/cancel", {"reason": "enough"})
    assert (await world.app.inspect.job(failed)).job.reason == "enough"
    assert (await admin.send(f"/jobs/{failed}/cancel")).status == 409
    assert await admin.does(f"/jobs/{failed}/delete") == "/jobs"


async def test_dead_letters_of_one_kind_run_again(world: World, admin: Visitor) -> None:
    for _ in range(3):
        await world.fails.enqueue()
    other = await world.fails.using(delay=HOUR).enqueue()
    await world.app.inspect.archive(other.id, reason="by hand")
    await world.app.worker(until_idle=True, concurrency=2, queues=["queue"]).run()
    shown = plain(await admin.page("/dead-letters"))
    assert re.search(r"LookupError 4 . fails . queue", shown)
    kind = {"queue": "queue", "task": "fails", "error": "LookupError"}
    assert (await admin.send("/dead-letters/retry", {**kind, "confirm": "1"})).status == 409
    await admin.does("/dead-letters/retry", {**kind, "confirm": "4"})
    assert admin.told == "4 jobs run again."
    assert await state_of(world, other.id) is State.FAILED


async def test_viewers_see_no_buttons(world: World) -> None:
    viewer = Visitor(world.app, Role.VIEWER)
    for path in ("/queues/queue", f"/jobs/{world.failed}", "/dead-letters", "/jobs"):
        forms = re.findall(r'<form[^>]*method="post"[^>]*action="([^"]+)"', await viewer.page(path))
        assert set(forms) <= {"/sign-out"}, path


@pytest.mark.parametrize("path", ["/", "/queues/queue", "/jobs", "/dead-letters", "/nowhere"])
async def test_wherever_it_is_mounted_every_address_is_below(world: World, path: str) -> None:
    async def auth(_: object) -> Who:
        return Who("ann", Role.ADMIN)

    shown = await ask(
        dashboard(world.app, auth=auth), "GET", path, headers={"accept": "text/html"}, prefix="/a/b"
    )
    addresses = re.findall(r'(?:href|src|action|sse-connect|data-chart)="([^"]+)"', shown.text)
    assert len(addresses) > 3
    assert [address for address in addresses if not address.startswith(("/a/b/", "#"))] == []


async def test_files_are_kept_by_browsers_until_they_change(world: World, admin: Visitor) -> None:
    files = re.findall(r'(?:href|src)="(/static/[^"#]+)', await admin.page("/workers"))
    assert len(files) > 10
    for file in set(files):
        assert "immutable" in (await admin.get(file)).headers["cache-control"]
    for other in ("/static/icon.svg", "/static/missing.svg?v=1"):
        assert "immutable" not in (await admin.get(other)).headers.get("cache-control", "")


async def test_names_may_be_anything() -> None:
    world = World("memory://", lambda name: f'{name}{"" if name in ("flow", "step") else "/"}<b>"&?#%20')
    async with world.app:
        await world.begin()
        admin = Visitor(world.app, Role.ADMIN)
        links = set()
        for path in ("/", "/queues", "/jobs", "/dead-letters", "/workers"):
            shown = await admin.page(path)
            assert "<b>" not in shown
            links |= set(re.findall(r'href="(/(?:queues|jobs)[^"]*)"', shown))
        assert len(links) > 10
        for link in links:
            assert "<b>" not in await admin.page(link.replace("&amp;", "&"))
