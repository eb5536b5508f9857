"""Pools as pages: how full, until when closed and why, overridden and opened from there."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.web.pages.visitor import Visitor, plain
from tidemill import Limit, PoolNotFound, Task, Tidemill
from tidemill.core.refusals import Reason, Refusal
from tidemill.core.spending import Observation
from tidemill.testing.kits import AsyncKit
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


async def test_where_there_is_none_it_is_told_how(admin: Visitor) -> None:
    assert "app.pool(" in await admin.page("/pools")


async def test_what_is_used_and_who_waits(
    app: Tidemill, ask: Task[[str], None], admin: Visitor, kit: AsyncKit
) -> None:
    await app.enqueue_many([ask.job(f"{number}") for number in range(15)])
    await kit.run_for(1)
    for page in ("/pools", WHERE):
        shown = await admin.page(page)
        assert "<i>" not in shown
        assert "a/b ?&lt;i&gt;" in shown
        assert "10 of 10" in plain(shown)
        assert "1,000 of 1,000" in plain(shown)
    assert "5 jobs wait" in plain(await admin.page("/pools"))
    assert "all free in" in plain(await admin.page(WHERE))


async def test_a_refusal_is_told_with_its_countdown(
    app: Tidemill, ask: Task[[str], None], admin: Visitor, kit: AsyncKit
) -> None:
    assert "open" in plain(await admin.page(WHERE))
    said = Refusal(reason=Reason.STATED, resets_at=kit.now + 600, text="come back <b>later</b>")
    await app.store.observe([Observation(pool=ODD, refusal=said)])
    shown = await admin.page(WHERE)
    assert "Closed until the provider&#39;s time" in shown
    assert "come back &lt;b&gt;later&lt;/b&gt;" in shown
    assert "data-until" in shown
    assert "refused" in plain(await admin.page("/pools"))
    await admin.does(f"{WHERE}/open")
    assert (await app.inspect.pool(ODD)).is_open


async def test_limits_are_overridden_and_follow_again(
    app: Tidemill, ask: Task[[str], None], admin: Visitor, kit: AsyncKit
) -> None:
    limits = [
        ("limit", "requests per minute"),
        ("amount", "4"),
        ("limit", "tokens per minute"),
        ("amount", "1000"),
    ]
    mark = [("lasts", "1d"), ("reason", "they are slow")]
    assert await admin.does(f"{WHERE}/override", [*limits, *mark]) == WHERE
    override = (await app.inspect.pool(ODD)).override
    assert override is not None
    assert override.changes.amounts == {"requests per minute": 4.0}
    assert (override.by, override.reason, override.until) == ("ann", "they are slow", kit.now + 86_400)
    await app.enqueue_many([ask.job(f"{number}") for number in range(15)])
    await kit.run_for(1)
    assert "4 of 4" in plain(await admin.page(WHERE))
    await admin.does(f"{WHERE}/follow")
    assert (await app.inspect.pool(ODD)).override is None
    for wrong, told in (
        (limits[:3], "every limit needs an amount"),
        ([("limit", "requests per minute"), ("amount", "10")], "every amount is as it was"),
        ([("limit", "requests per minute"), ("amount", "0")], "must be above 0"),
        ([("limit", "requests per minute"), ("amount", "many")], "amount"),
    ):
        refused = await admin.send(f"{WHERE}/override", wrong)
        assert (refused.status, told in plain(refused.text)) == (422, True), refused.text


async def test_it_is_closed_by_whom_and_why(
    app: Tidemill, ask: Task[[str], None], admin: Visitor, kit: AsyncKit
) -> None:
    await admin.does(f"{WHERE}/close", {"reason": "the invoice is open", "lasts": "30m"})
    closed = (await app.inspect.pool(ODD)).closed
    assert closed is not None
    assert (closed.by, closed.reason, closed.until) == ("ann", "the invoice is open", kit.now + 1800)
    assert "Closed by ann: the invoice is open" in plain(await admin.page("/pools"))


async def test_the_busiest_keys_come_first(
    app: Tidemill, fetch: Task[[str], None], admin: Visitor, kit: AsyncKit
) -> None:
    await app.enqueue_many(
        [fetch.job(host) for host in ["a.example"] * 3 + ["b.example"] * 9 + ["c.example"]]
    )
    await kit.run_for(1)
    shown = plain(await admin.page("/pools/site"))
    assert shown.index("b.example") < shown.index("a.example") < shown.index("c.example")
    await admin.does("/pools/site/close", {"key": "c.example"})
    shown = plain(await admin.page("/pools/site"))
    assert shown.index("c.example") < shown.index("b.example")
    one = await admin.page("/pools/site?key=b.example")
    assert "2 of 2" in plain(one)
    assert '<input type="hidden" name="key" value="b.example">' in one
    assert await admin.does("/pools/site/open", {"key": "c.example"}) == "/pools/site?key=c.example"
    assert (await admin.get("/pools/none")).status == 404
    with pytest.raises(PoolNotFound):
        await app.inspect.pool("none")


async def test_a_day_of_calls_and_refusals(
    app: Tidemill, ask: Task[[str], None], admin: Visitor, kit: AsyncKit
) -> None:
    await app.enqueue_many([ask.job(f"{number}") for number in range(15)])
    await kit.run_for(120)
    await app.store.observe([Observation(pool=ODD, refusal=Refusal(reason=Reason.RATE))])
    drawn = (await admin.get(f"{WHERE}/chart")).json
    calls, refusals = drawn["lines"]
    assert (len(drawn["at"]), sum(calls["values"]), sum(refusals["values"])) == (288, 15, 1)
    assert drawn["at"][-1] <= kit.now < drawn["at"][-1] + 300


async def test_who_may_only_look_has_nothing_to_press(
    app: Tidemill, ask: Task[[str], None], kit: AsyncKit
) -> None:
    viewer, operator = Visitor(app, Role.VIEWER), Visitor(app, Role.OPERATOR)
    await app.inspect.override_pool(ODD, {"requests per minute": 4}, by="ann", reason="they are slow")
    assert "they are slow" in await viewer.page(WHERE)
    assert '<form method="post"' not in (await viewer.page(WHERE)).split("<main", 1)[1]
    assert "/close" in await operator.page(WHERE)
    assert "/override" not in await operator.page(WHERE)
    assert (await operator.send(f"{WHERE}/override", [("limit", "x"), ("amount", "1")])).status == 403
    assert (await viewer.send(f"{WHERE}/close")).status == 403
