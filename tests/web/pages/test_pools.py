"""The pool pages: usage, closures, override, open and close."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.web.pages.page_client import PageClient, visible_text
from tidemill import Limit, PoolNotFound, Task, Tidemill
from tidemill.core.feedback import Observation, Reason, Refusal
from tidemill.testing.kit import AsyncKit
from tidemill.web import Role

ODD = "a/b ?<i>"
WHERE = f"/pools/{quote(ODD, safe='')}"


@pytest.fixture
def ask(app: Tidemill) -> Task[[str], None]:
    pool = app.pool(ODD, Limit.requests(10, per="minute"), Limit.tokens(1000, per="minute"))

    @app.task(name="ask", queue="asking", pool=pool, cost={"tokens": 100})
    async def ask(what: str) -> None: ...

    return ask


@pytest.fixture
def fetch(app: Tidemill) -> Task[[str], None]:
    @app.task(
        queue="feeds",
        pool=app.pool("site", Limit.requests(2, per="minute"), keyed=True).by(lambda host: host),
    )
    async def fetch(host: str) -> None: ...

    return fetch


async def test_an_empty_page_explains_pools(admin: PageClient) -> None:
    assert "app.pool(" in await admin.page("/pools")


async def test_a_pool_shows_its_usage_and_waiting_jobs(
    app: Tidemill, ask: Task[[str], None], admin: PageClient, kit: AsyncKit
) -> None:
    await app.enqueue_many([ask.job(f"{number}") for number in range(15)])
    await kit.run_for(1)
    for page in ("/pools", WHERE):
        shown = await admin.page(page)
        assert "<i>" not in shown
        assert "a/b ?&lt;i&gt;" in shown
        assert "10 of 10" in visible_text(shown)
        assert "1,000 of 1,000" in visible_text(shown)
    assert "5 jobs waiting" in visible_text(await admin.page("/pools"))
    assert "all free in" in visible_text(await admin.page(WHERE))


async def test_a_refusal_has_a_countdown(
    app: Tidemill, ask: Task[[str], None], admin: PageClient, kit: AsyncKit
) -> None:
    assert "open" in visible_text(await admin.page(WHERE))
    refusal = Refusal(reason=Reason.STATED, resets_at=kit.now + 600, text="come back <b>later</b>")
    await app.store.observe([Observation(pool=ODD, refusal=refusal)])
    shown = await admin.page(WHERE)
    assert "Closed until the time the provider named" in shown
    assert "come back &lt;b&gt;later&lt;/b&gt;" in shown
    assert "data-until" in shown
    assert "refused" in visible_text(await admin.page("/pools"))
    await admin.does(f"{WHERE}/open")
    assert (await app.inspect.pool(ODD)).is_open


async def test_limits_are_overridden_and_restored(
    app: Tidemill, ask: Task[[str], None], admin: PageClient, kit: AsyncKit
) -> None:
    limits = [
        ("limit", "requests per minute"),
        ("amount", "4"),
        ("limit", "tokens per minute"),
        ("amount", "1000"),
    ]
    mark = [("duration", "1d"), ("reason", "they are slow")]
    assert await admin.does(f"{WHERE}/override", [*limits, *mark]) == WHERE
    override = (await app.inspect.pool(ODD)).override
    assert override is not None
    assert override.changes.amounts == {"requests per minute": 4.0}
    assert (override.by, override.reason, override.until) == ("ann", "they are slow", kit.now + 86_400)
    await app.enqueue_many([ask.job(f"{number}") for number in range(15)])
    await kit.run_for(1)
    assert "4 of 4" in visible_text(await admin.page(WHERE))
    await admin.does(f"{WHERE}/clear-override")
    assert (await app.inspect.pool(ODD)).override is None
    for wrong, message in (
        (limits[:3], "every limit needs an amount"),
        ([("limit", "requests per minute"), ("amount", "10")], "every amount is as it was"),
        ([("limit", "requests per minute"), ("amount", "0")], "must be above 0"),
        ([("limit", "requests per minute"), ("amount", "many")], "amount"),
    ):
        refused = await admin.send(f"{WHERE}/override", wrong)
        assert (refused.status, message in visible_text(refused.text)) == (422, True), refused.text


async def test_the_limits_of_one_key_are_overridden_and_restored(
    app: Tidemill, fetch: Task[[str], None], admin: PageClient, kit: AsyncKit
) -> None:
    key, where = {"key": "a.example"}, "/pools/site?key=a.example"
    form = {"limit": "requests per minute", "amount": "1", "reason": "they are slow", "duration": "1d"}
    assert await admin.does("/pools/site/override", key | form) == where
    status = await app.inspect.pool("site", key="a.example")
    assert status.override is None
    assert status.key_override is not None
    assert (status.key_override.by, status.key_override.until) == ("ann", kit.now + 86_400)
    shown = await admin.page(where)
    assert "This key is overridden by ann" in visible_text(shown)
    assert "they are slow" in visible_text(shown)
    assert "overridden" in visible_text(await admin.page("/pools"))
    await app.enqueue_many([fetch.job(host) for host in ["a.example", "b.example"] * 3])
    await kit.run_for(1)
    assert "1 of 1" in visible_text(await admin.page(where))
    assert "2 of 2" in visible_text(await admin.page("/pools/site?key=b.example"))
    await app.inspect.override_pool("site", {"requests per minute": 5}, by="bo")
    assert "All keys are overridden by bo" in visible_text(await admin.page(where))
    assert await admin.does("/pools/site/clear-override", key) == where
    status = await app.inspect.pool("site", key="a.example")
    assert status.key_override is None
    assert status.limits[0].amount == 5


async def test_a_learned_spacing_is_shown(
    app: Tidemill, fetch: Task[[str], None], admin: PageClient, kit: AsyncKit
) -> None:
    await app.inspect.override_pool("site", {"requests per minute": 1}, by="ann")
    for _ in range(2):
        kit.advance(100)
        refusal = Refusal(reason=Reason.RATE, status=429)
        await app.store.observe([Observation(pool="site", key="slow.example", refusal=refusal)])
    assert "one call per 240 s" in visible_text(await admin.page("/pools/site?key=slow.example"))
    assert "one call per" not in visible_text(await admin.page("/pools/site?key=fast.example"))


async def test_a_closed_pool_shows_author_and_reason(
    app: Tidemill, ask: Task[[str], None], admin: PageClient, kit: AsyncKit
) -> None:
    await admin.does(f"{WHERE}/close", {"reason": "the invoice is open", "duration": "30m"})
    closed = (await app.inspect.pool(ODD)).closed
    assert closed is not None
    assert (closed.by, closed.reason, closed.until) == ("ann", "the invoice is open", kit.now + 1800)
    assert "Closed by ann: the invoice is open" in visible_text(await admin.page("/pools"))


async def test_the_busiest_keys_come_first(
    app: Tidemill, fetch: Task[[str], None], admin: PageClient, kit: AsyncKit
) -> None:
    await app.enqueue_many(
        [fetch.job(host) for host in ["a.example"] * 3 + ["b.example"] * 9 + ["c.example"]]
    )
    await kit.run_for(1)
    shown = visible_text(await admin.page("/pools/site"))
    assert shown.index("b.example") < shown.index("a.example") < shown.index("c.example")
    await admin.does("/pools/site/close", {"key": "c.example"})
    shown = visible_text(await admin.page("/pools/site"))
    assert shown.index("c.example") < shown.index("b.example")
    one = await admin.page("/pools/site?key=b.example")
    assert "2 of 2" in visible_text(one)
    assert '<input type="hidden" name="key" value="b.example">' in one
    assert await admin.does("/pools/site/open", {"key": "c.example"}) == "/pools/site?key=c.example"
    assert (await admin.get("/pools/none")).status == 404
    with pytest.raises(PoolNotFound):
        await app.inspect.pool("none")


async def test_the_chart_of_calls_and_refusals(
    app: Tidemill, ask: Task[[str], None], admin: PageClient, kit: AsyncKit
) -> None:
    await app.enqueue_many([ask.job(f"{number}") for number in range(15)])
    await kit.run_for(120)
    await app.store.observe([Observation(pool=ODD, refusal=Refusal(reason=Reason.RATE))])
    drawn = (await admin.get(f"{WHERE}/chart")).json
    calls, refusals = drawn["lines"]
    assert (len(drawn["at"]), sum(calls["values"]), sum(refusals["values"])) == (288, 15, 1)
    assert drawn["at"][-1] <= kit.now < drawn["at"][-1] + 300


async def test_a_viewer_has_no_buttons(app: Tidemill, ask: Task[[str], None], kit: AsyncKit) -> None:
    viewer, operator = PageClient(app, Role.VIEWER), PageClient(app, Role.OPERATOR)
    await app.inspect.override_pool(ODD, {"requests per minute": 4}, by="ann", reason="they are slow")
    assert "they are slow" in await viewer.page(WHERE)
    assert '<form method="post"' not in (await viewer.page(WHERE)).split("<main", 1)[1]
    assert "/close" in await operator.page(WHERE)
    assert "/override" not in await operator.page(WHERE)
    assert (await operator.send(f"{WHERE}/override", [("limit", "x"), ("amount", "1")])).status == 403
    assert (await viewer.send(f"{WHERE}/close")).status == 403
