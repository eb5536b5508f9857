"""The pages overview, queues, jobs, dead letters and workers."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator

import pytest

from tests.web.asgi_client import send_request
from tests.web.pages.page_client import PageClient, visible_text
from tests.web.populated_store import HOUR, PopulatedStore
from tidemill import Filter, Retention, State, Tidemill
from tidemill.core.feedback import Observation, Reason, Refusal
from tidemill.http_routes.routes import Role, User
from tidemill.web import dashboard


@pytest.fixture
async def world() -> AsyncIterator[PopulatedStore]:
    world = PopulatedStore("memory://")
    async with world.app:
        await world.populate()
        yield world


@pytest.fixture
def admin(world: PopulatedStore) -> PageClient:
    return PageClient(world.app, Role.ADMIN)


async def state_of(world: PopulatedStore, id: str) -> State:  # noqa: A002 - the word for it
    return (await world.app.inspect.job(id)).job.state


async def test_numbers_on_pages_equal_a_recount(world: PopulatedStore, admin: PageClient) -> None:
    jobs = [job async for job in world.app.inspect.each(Filter(states=tuple(State)))]
    overview = visible_text(await admin.page("/"))
    for state in (State.READY, State.SCHEDULED, State.FAILED, State.DONE):
        many = sum(job.state is state for job in jobs)
        assert many
        assert f"{state} {many}" in overview
    of_queue = visible_text(await admin.page("/queues/queue"))
    for state in State:
        assert f"{state} {sum(job.state is state and job.queue == 'queue' for job in jobs)}" in of_queue
    tabs = visible_text(await admin.page("/jobs?queue=queue"))
    assert f"done {sum(job.state is State.DONE and job.queue == 'queue' for job in jobs)}" in tabs


async def test_warnings_come_first(world: PopulatedStore, admin: PageClient) -> None:
    await world.app.inspect.pause("queue", reason="inventory")
    refusal = Refusal(reason=Reason.DAY_QUOTA, text="come back tomorrow")
    await world.app.store.observe([Observation(pool="pool", refusal=refusal)])
    text = visible_text(re.split("</section>", await admin.page("/"))[0])
    assert text.index("no worker asking") < text.index("paused queue inventory")
    assert text.index("refused pool come back tomorrow") < text.index("paused queue inventory")
    assert "closed pool reason" in text
    assert "failed queue 1 dead letter" in text


async def test_results_pruned_early_are_on_the_overview_and_in_the_api(
    world: PopulatedStore, admin: PageClient
) -> None:
    kept = Retention(age=3600.0, count=0)
    await world.app.inspect.override("queue", by="ann", keep_done=kept)
    early = (await world.app.store.prune()).early["queue"]
    text = visible_text(re.split("</section>", await admin.page("/"))[0])
    assert f"results pruned queue {early} finished job" in text
    (queue,) = (one for one in (await world.app.inspect.overview()).queues if one.name == "queue")
    assert queue.dropped_early == early > 0


@pytest.mark.parametrize("path", ["/", "/queues", "/jobs", "/dead-letters", "/workers"])
async def test_an_empty_page_has_an_example(path: str) -> None:
    app = Tidemill("memory://")
    async with app:
        shown = await PageClient(app, Role.VIEWER).page(path)
    assert 'class="empty"' in shown
    assert "<pre" in shown


async def test_pages_use_the_language_of_the_browser(world: PopulatedStore) -> None:
    chinese = await PageClient(world.app, Role.VIEWER, "zh-CN,zh;q=0.9,en;q=0.8").page("/queues/queue")
    assert '<html lang="zh"' in chinese
    assert "过去 24 小时" in chinese


async def test_a_queue_is_paused_until_a_time_and_resumed(world: PopulatedStore, admin: PageClient) -> None:
    assert (
        await admin.does("/queues/queue/pause", {"duration": "30m", "reason": "inventory"}) == "/queues/queue"
    )
    pause = (await world.app.inspect.queue("queue")).pause
    assert pause is not None
    assert pause.until == pytest.approx(world.app.clock.wall() + 1800, abs=5)
    assert "inventory" in await admin.page("/queues/queue")
    await admin.does("/queues/queue/resume")
    assert (await world.app.inspect.queue("queue")).pause is None
    assert admin.notice == "Queue resumed."


async def test_settings_are_overridden_and_restored(world: PopulatedStore, admin: PageClient) -> None:
    await admin.does("/queues/queue/clear-override")
    holds = (await world.app.inspect.queue("queue")).settings
    form = {
        "weight": "4",
        "concurrency": "2",
        "crash_limit": str(holds.crash_limit),
        **{f"{name}_age": f"{getattr(holds, name).age:.0f}s" for name in ("keep_done", "keep_failed")},
        **{f"{name}_count": str(getattr(holds, name).count) for name in ("keep_done", "keep_failed")},
        "reason": "a campaign",
        "duration": "2h",
    }
    await admin.does("/queues/queue/override", form)
    override = (await world.app.inspect.queue("queue")).override
    assert override is not None
    assert set(override.changes.given()) == {"weight", "concurrency", "keep_cancelled"}
    assert (override.by, override.reason) == ("ann", "a campaign")
    assert override.until == pytest.approx(world.app.clock.wall() + 2 * HOUR, abs=5)
    assert "overridden by ann" in visible_text(await admin.page("/queues/queue"))


@pytest.mark.parametrize("field", ["duration", "keep_done_age"])
async def test_an_invalid_duration_names_its_field(
    world: PopulatedStore, admin: PageClient, field: str
) -> None:
    refused = await admin.send("/queues/queue/override", {field: "2 hours"})
    assert refused.status == 422
    assert f"{field}: must be a duration, such as 90s" in visible_text(refused.text)


async def test_emptying_a_queue_needs_its_name(world: PopulatedStore, admin: PageClient) -> None:
    refused = await admin.send("/queues/queue/empty", {"confirm": "queues"})
    assert refused.status == 422
    assert "confirm: must be the name of the queue" in visible_text(refused.text).replace("&#39;", "'")
    await admin.does("/queues/queue/empty", {"confirm": "queue"})
    assert sum((await world.app.inspect.queue("queue")).counts.values()) == 0


async def test_the_chart_of_a_queue_has_every_job(world: PopulatedStore, admin: PageClient) -> None:
    chart = json.loads((await admin.get("/queues/queue/history")).body)
    view = await world.app.inspect.queue("queue")
    lines = {line["name"]: line["values"] for line in chart["lines"]}
    assert sum(lines["done"]) + sum(lines["failed"]) == view.processed > 0
    assert {len(values) for values in lines.values()} == {len(chart["at"])}


async def test_jobs_are_found_by_every_criterion(world: PopulatedStore, admin: PageClient) -> None:
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


async def test_pages_of_jobs_follow_each_other(world: PopulatedStore, admin: PageClient) -> None:
    await world.app.enqueue_many([world.works.job({"name": str(number)}) for number in range(70)])
    seen: list[str] = []
    path = "/jobs?state=ready&queue=queue"
    while path:
        shown = await admin.page(path)
        seen += re.findall(r'<tr id="job-([^"]+)"', shown)
        following = re.search(r'href="([^"]+)" rel="next"', shown)
        path = following[1].replace("&amp;", "&") if following else ""
    assert len(seen) == len(set(seen)) == (await world.app.inspect.queue("queue")).counts[State.READY]


async def test_only_selected_jobs_are_changed(world: PopulatedStore, admin: PageClient) -> None:
    ready, done = world.ready, world.done
    await admin.does("/bulk/reprioritise", [("ids", ready), ("ids", done), ("priority", "1")])
    assert admin.notice == "Priority of 1 job changed. 1 skipped: wrong state."
    await admin.does("/bulk/cancel", {"ids": ready})
    assert await state_of(world, ready) is State.CANCELLED
    assert (await admin.send("/bulk/reprioritise", {"ids": done})).status == 422
    await admin.does("/bulk/delete", {"ids": ready})
    assert (await admin.get(f"/jobs/{ready}")).status == 404


async def test_all_matching_jobs_are_changed_if_their_number_was_confirmed(
    world: PopulatedStore, admin: PageClient
) -> None:
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


async def test_a_job_shows_why_it_waits_and_its_log(world: PopulatedStore, admin: PageClient) -> None:
    failed = visible_text(await admin.page(f"/jobs/{world.failed}"))
    assert "LookupError" in failed
    assert "Traceback (most recent call last)" in failed
    done = visible_text(await admin.page(f"/jobs/{world.done}"))
    for part in ("checkpoint", "log", "argument", "result"):
        assert part in done
    [asking] = [job async for job in world.app.inspect.each(Filter(queue="asking"))]
    why = visible_text(await admin.page(f"/jobs/{asking.id}"))
    assert "Queue paused" in why
    assert "Pool closed" in why


async def test_a_job_is_retried_cancelled_and_deleted(world: PopulatedStore, admin: PageClient) -> None:
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


async def test_a_group_of_dead_letters_is_retried(world: PopulatedStore, admin: PageClient) -> None:
    for _ in range(3):
        await world.fails.enqueue()
    other = await world.fails.using(delay=HOUR).enqueue()
    await world.app.inspect.archive(other.id, reason="by hand")
    await world.app.worker(until_idle=True, concurrency=2, queues=["queue"]).run()
    shown = visible_text(await admin.page("/dead-letters"))
    assert re.search(r"LookupError 4 . fails . queue", shown)
    kind = {"queue": "queue", "task": "fails", "error": "LookupError"}
    assert (await admin.send("/dead-letters/retry", {**kind, "confirm": "1"})).status == 409
    await admin.does("/dead-letters/retry", {**kind, "confirm": "4"})
    assert admin.notice == "4 jobs retried."
    assert await state_of(world, other.id) is State.FAILED


async def test_viewers_see_no_buttons(world: PopulatedStore) -> None:
    viewer = PageClient(world.app, Role.VIEWER)
    for path in ("/queues/queue", f"/jobs/{world.failed}", "/dead-letters", "/jobs"):
        forms = re.findall(r'<form[^>]*method="post"[^>]*action="([^"]+)"', await viewer.page(path))
        assert set(forms) <= {"/sign-out"}, path


@pytest.mark.parametrize("path", ["/", "/queues/queue", "/jobs", "/dead-letters", "/nowhere"])
async def test_every_address_has_the_mount_prefix(world: PopulatedStore, path: str) -> None:
    async def auth(_: object) -> User:
        return User("ann", Role.ADMIN)

    shown = await send_request(
        dashboard(world.app, auth=auth), "GET", path, headers={"accept": "text/html"}, prefix="/a/b"
    )
    addresses = re.findall(r'(?:href|src|action|sse-connect|data-chart)="([^"]+)"', shown.text)
    assert len(addresses) > 3
    assert [address for address in addresses if not address.startswith(("/a/b/", "#"))] == []


async def test_static_files_are_cached_until_they_change(world: PopulatedStore, admin: PageClient) -> None:
    files = re.findall(r'(?:href|src)="(/static/[^"#]+)', await admin.page("/workers"))
    assert len(files) > 10
    for file in set(files):
        assert "immutable" in (await admin.get(file)).headers["cache-control"]
    for other in ("/static/icon.svg", "/static/missing.svg?v=1"):
        assert "immutable" not in (await admin.get(other)).headers.get("cache-control", "")


async def test_names_may_be_anything() -> None:
    world = PopulatedStore(
        "memory://", lambda name: f'{name}{"" if name in ("flow", "step") else "/"}<b>"&?#%20'
    )
    async with world.app:
        await world.populate()
        admin = PageClient(world.app, Role.ADMIN)
        links = set()
        for path in ("/", "/queues", "/jobs", "/dead-letters", "/workers"):
            shown = await admin.page(path)
            assert "<b>" not in shown
            links |= set(re.findall(r'href="(/(?:queues|jobs)[^"]*)"', shown))
        assert len(links) > 10
        for link in links:
            assert "<b>" not in await admin.page(link.replace("&amp;", "&"))
