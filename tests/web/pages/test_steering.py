"""Settings, plans, the audit log, tokens, alerts and webhooks as pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.web.pages.visitor import Visitor, plain
from tidemill import Limit, Tidemill
from tidemill.testing.kits import AsyncKit
from tidemill.web import Asked, Role, Who
from tidemill.web.inspecting import Shown
from tidemill.web.live import Looks
from tidemill.web.pages.alerts import alerts


class TestSettings:
    async def test_where_each_value_came_from(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TIDEMILL_WORKER_LEASE", "45")
        monkeypatch.setenv("TIDEMILL_LAESE", "1")
        app = Tidemill(f"sqlite:///{tmp_path / 'jobs.db'}")
        app.queue("feeds", concurrency=3)
        async with app:
            await app.inspect.override("feeds", by="bo", reason="slower", concurrency=2)
            shown = plain(await Visitor(app, Role.VIEWER).page("/settings"))
        assert "worker.lease 45 s environment TIDEMILL_WORKER_LEASE how long a claim lasts" in shown
        assert "web.session 43200 s (12 h) default" in shown
        assert "TIDEMILL_LAESE is set and nobody reads it" in shown
        assert "feeds overridden by bo: slower 1 2 3 " in shown
        assert "web.port 8750 default" in shown

    async def test_secrets_are_masked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TIDEMILL_ALERTS_SMTP_URL", "smtps://robot:opensesame@mail.example")
        monkeypatch.setenv("TIDEMILL_ALERTS_SLACK_URL", "https://hooks.slack.com/services/opensesame")
        app = Tidemill("memory://")
        async with app:
            shown = await Visitor(app, Role.ADMIN).page("/settings")
        assert "opensesame" not in shown
        assert re.search(r"alerts.smtp_url \S+ environment TIDEMILL_ALERTS_SMTP_URL", plain(shown))

    async def test_the_applications_own_are_changed(
        self, app: Tidemill, admin: Visitor, kit: AsyncKit
    ) -> None:
        kept = {"songs": 10}

        async def read() -> int:
            return kept["songs"]

        async def write(value: int) -> None:
            kept["songs"] = value

        app.web.setting("songs", int, says="how many at once", read=read, write=write)
        admin = Visitor(app, Role.ADMIN)
        assert 'action="/settings/songs"' in await admin.page("/settings")
        assert await admin.does("/settings/songs", {"value": "20"}) == "/settings"
        assert kept == {"songs": 20}
        assert (await admin.send("/settings/songs", {"value": "many"})).status == 422
        assert (await admin.send("/settings/none", {"value": "1"})).status == 404
        assert "/settings/songs" not in await Visitor(app, Role.OPERATOR).page("/settings")


class TestPlan:
    @pytest.fixture(autouse=True)
    def tasks(self, app: Tidemill) -> None:
        slow = app.pool("slow", Limit.requests(10, per="minute"))

        @app.task(name="ask", queue="asking", pool=slow)
        async def ask(what: str) -> None: ...

        @app.task(name="dear", queue="asking", pool=slow, cost=lambda size: {"requests": size})
        async def dear(size: int) -> None: ...

    async def test_when_so_many_would_be_done(self, admin: Visitor) -> None:
        assert "Nothing is sent." in await admin.page("/plan")
        shown = plain(await admin.page("/plan?task=ask&count=100&takes=1s"))
        assert "100 jobs of ask: done by" in shown
        assert "10 requests per minute bottleneck slow" in shown
        assert "No worker serves the queue asking" in shown

    async def test_an_example_of_the_arguments(self, admin: Visitor) -> None:
        asked = "/plan?task=dear&count=10"
        missing = await admin.get(asked)
        assert (missing.status, "computed from the arguments" in missing.text) == (422, True)
        assert "10 jobs of dear" in plain(await admin.page(f"{asked}&arguments=%7B%22size%22%3A2%7D"))

    @pytest.mark.parametrize(
        ("query", "told"),
        [
            ("task=none&count=1", "none"),
            ("task=ask&count=1&takes=soon", "takes: must be a duration"),
            ("task=ask&count=1&arguments=%5B%5D", "arguments: must be a JSON object"),
            ("task=ask&count=1&arguments=%7B%22where%22%3A1%7D", "where"),
            ("task=ask&count=0", "count"),
        ],
    )
    async def test_what_is_wrong_is_said_beside_it(self, admin: Visitor, query: str, told: str) -> None:
        answer = await admin.get(f"/plan?{query}")
        assert (answer.status, told in plain(answer.text)) == (422, True)


class TestTokens:
    async def test_a_secret_is_shown_once(self, app: Tidemill, admin: Visitor, kit: AsyncKit) -> None:
        made = await admin.send("/tokens", {"name": "<i>bo</i>", "role": "operator", "lasts": "30d"})
        assert made.status == 200
        [secret] = set(re.findall(r"Bearer (\S+)</code>", made.text))
        who = await app.access.tokens.who(secret)
        assert who is not None
        assert (who.name, who.role) == ("<i>bo</i>", Role.OPERATOR)
        [token] = await app.access.tokens.list()
        assert (token.by, token.expires) == ("ann", kit.now + 30 * 86_400)
        listed = await admin.page("/tokens")
        assert (secret in listed, "<i>bo</i>" in listed, "&lt;i&gt;bo" in listed) == (False, False, True)
        assert secret not in await admin.page("/audit")

    async def test_it_is_revoked(self, app: Tidemill, admin: Visitor) -> None:
        issued = await app.access.tokens.create("bo", Role.VIEWER)
        assert await admin.does(f"/tokens/{issued.token.id}/revoke") == "/tokens"
        assert await app.access.tokens.who(issued.secret) is None
        assert "revoked" in plain(await admin.page("/tokens"))
        assert (await admin.send("/tokens/none/revoke")).status == 404
        assert (await admin.send("/tokens", {"name": "bo", "role": "anybody"})).status == 422

    async def test_they_are_an_admins(self, app: Tidemill, kit: AsyncKit) -> None:
        operator = Visitor(app, Role.OPERATOR)
        for path in ("/tokens", "/audit"):
            assert (await operator.get(path)).status == 403
        assert 'href="/tokens"' not in await operator.page("/plan")


class TestAudit:
    async def test_who_did_what(self, app: Tidemill, admin: Visitor) -> None:
        assert "Nothing was changed yet" in await admin.page("/audit")
        await admin.send("/tokens", {"name": "bo", "role": "viewer"})
        await Visitor(app, Role.VIEWER).send("/tokens", {"name": "me", "role": "admin"})
        shown = plain(await admin.page("/audit"))
        assert re.search(r"ann POST /tokens refused needs admin 127\.0\.0\.1", shown)
        assert re.search(r"ann POST /tokens name bo role viewer done 127\.0\.0\.1", shown)
        assert "needs admin" not in plain(await admin.page("/audit?outcome=done"))

    async def test_a_page_goes_on_where_the_last_ended(
        self, app: Tidemill, admin: Visitor, kit: AsyncKit
    ) -> None:
        for number in range(101):
            await app.access.audit.write(Who("bo", Role.ADMIN), "token create", {"number": number})
            kit.advance(1)
        [following] = re.findall(r'href="(/audit\?cursor=[^"]+)"', await admin.page("/audit"))
        last = plain(await admin.page(following))
        assert ("number 0 " in last, "number 1 " in last) == (True, False)


class TestAlerts:
    async def test_rules_and_channels(self, app: Tidemill, admin: Visitor, kit: AsyncKit) -> None:
        empty = await admin.page("/alerts")
        assert "No channel is set" in empty
        app.alert("feeds wait", on="queue_length", queue="feeds", above=1000, clear=500)
        shown = plain(await admin.page("/alerts"))
        assert "feeds wait jobs that are ready or scheduled 1,000 500" in shown
        await admin.does("/alerts/test")
        assert admin.told == "No channel is set, so nothing was sent."

    async def test_webhooks_are_added_tried_and_removed(
        self, app: Tidemill, admin: Visitor, kit: AsyncKit
    ) -> None:
        form = [
            ("name", "shop"),
            ("url", "https://shop.example/hook"),
            ("on", "job.done"),
            ("on", "flow.ended"),
        ]
        await admin.does("/webhooks", form)
        [webhook] = await app.webhooks.list()
        assert (webhook.name, webhook.by, tuple(webhook.on)) == ("shop", "ann", ("job.done", "flow.ended"))
        assert "shop by ann https://shop.example/hook job.done flow.ended" in plain(
            await admin.page("/alerts")
        )
        assert (await admin.does("/webhooks/shop/test")).startswith("/jobs/")
        assert "shop.example" not in await Visitor(app, Role.OPERATOR).page("/alerts")
        told = await alerts(
            Asked(app=app, inspect=Shown(app), looks=Looks(app.clock), who=Who("bo", Role.OPERATOR))
        )
        assert told.shows["webhooks"] == [], "what is drawn again for viewers has them neither"
        await admin.does("/webhooks/shop/remove")
        assert await app.webhooks.list() == []
        assert (await admin.send("/webhooks", [("name", "bad"), ("url", "ftp://x")])).status == 422
