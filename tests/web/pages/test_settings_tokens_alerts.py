"""The pages settings, plan, audit log, tokens and alerts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.web.pages.page_client import PageClient, visible_text
from tidemill import Limit, Tidemill
from tidemill.testing.kit import AsyncKit
from tidemill.web import Role, RouteRequest, User
from tidemill.web.live_views import LiveViews
from tidemill.web.pages.alerts import alerts_page
from tidemill.web.redacted_inspector import RedactedInspector


class TestSettings:
    async def test_settings_show_their_source(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TIDEMILL_WORKER_LEASE", "45")
        monkeypatch.setenv("TIDEMILL_LAESE", "1")
        app = Tidemill(f"sqlite:///{tmp_path / 'jobs.db'}")
        app.queue("feeds", concurrency=3)
        async with app:
            await app.inspect.override("feeds", by="bo", reason="slower", concurrency=2)
            shown = visible_text(await PageClient(app, Role.VIEWER).page("/settings"))
        assert "worker.lease 45 s environment TIDEMILL_WORKER_LEASE how long a claim lasts" in shown
        assert "web.session 43200 s (12 h) default" in shown
        assert "TIDEMILL_LAESE is set and has no effect" in shown
        assert "feeds overridden by bo: slower 1 2 3 " in shown
        assert "web.port 8750 default" in shown

    async def test_secrets_are_masked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TIDEMILL_ALERTS_SMTP_URL", "smtps://robot:opensesame@mail.example")
        monkeypatch.setenv("TIDEMILL_ALERTS_SLACK_URL", "https://hooks.slack.com/services/opensesame")
        app = Tidemill("memory://")
        async with app:
            shown = await PageClient(app, Role.ADMIN).page("/settings")
        assert "opensesame" not in shown
        assert re.search(r"alerts.smtp_url \S+ environment TIDEMILL_ALERTS_SMTP_URL", visible_text(shown))

    async def test_application_settings_are_changed(
        self, app: Tidemill, admin: PageClient, kit: AsyncKit
    ) -> None:
        kept = {"songs": 10}

        async def read() -> int:
            return kept["songs"]

        async def write(value: int) -> None:
            kept["songs"] = value

        app.web.setting("songs", int, summary="how many at once", read=read, write=write)
        admin = PageClient(app, Role.ADMIN)
        assert 'action="/settings/songs"' in await admin.page("/settings")
        assert await admin.does("/settings/songs", {"value": "20"}) == "/settings"
        assert kept == {"songs": 20}
        assert (await admin.send("/settings/songs", {"value": "many"})).status == 422
        assert (await admin.send("/settings/none", {"value": "1"})).status == 404
        assert "/settings/songs" not in await PageClient(app, Role.OPERATOR).page("/settings")


class TestPlan:
    @pytest.fixture(autouse=True)
    def tasks(self, app: Tidemill) -> None:
        slow = app.pool("slow", Limit.requests(10, per="minute"))

        @app.task(name="ask", queue="asking", pool=slow)
        async def ask(what: str) -> None: ...

        @app.task(name="dear", queue="asking", pool=slow, cost=lambda size: {"requests": size})
        async def dear(size: int) -> None: ...

    async def test_a_plan_of_a_number_of_jobs(self, admin: PageClient) -> None:
        assert "Nothing is enqueued." in await admin.page("/plan")
        shown = visible_text(await admin.page("/plan?task=ask&count=100&takes=1s"))
        assert "100 jobs of ask: estimated done" in shown
        assert "10 requests per minute bottleneck slow" in shown
        assert "No worker serves the queue asking" in shown

    async def test_a_plan_with_example_arguments(self, admin: PageClient) -> None:
        path = "/plan?task=dear&count=10"
        missing = await admin.get(path)
        assert (missing.status, "computed from the arguments" in missing.text) == (422, True)
        assert "10 jobs of dear" in visible_text(await admin.page(f"{path}&arguments=%7B%22size%22%3A2%7D"))

    @pytest.mark.parametrize(
        ("query", "message"),
        [
            ("task=none&count=1", "none"),
            ("task=ask&count=1&takes=soon", "takes: must be a duration"),
            ("task=ask&count=1&arguments=%5B%5D", "arguments: must be a JSON object"),
            ("task=ask&count=1&arguments=%7B%22where%22%3A1%7D", "where"),
            ("task=ask&count=0", "count"),
        ],
    )
    async def test_an_error_is_shown_beside_the_form(
        self, admin: PageClient, query: str, message: str
    ) -> None:
        answer = await admin.get(f"/plan?{query}")
        assert (answer.status, message in visible_text(answer.text)) == (422, True)


class TestTokens:
    async def test_a_secret_is_shown_once(self, app: Tidemill, admin: PageClient, kit: AsyncKit) -> None:
        made = await admin.send("/tokens", {"name": "<i>bo</i>", "role": "operator", "expires_in": "30d"})
        assert made.status == 200
        [secret] = set(re.findall(r"Bearer (\S+)</code>", made.text))
        user = await app.auth.tokens.user(secret)
        assert user is not None
        assert (user.name, user.role) == ("<i>bo</i>", Role.OPERATOR)
        [token] = await app.auth.tokens.list()
        assert (token.by, token.expires) == ("ann", kit.now + 30 * 86_400)
        listed = await admin.page("/tokens")
        assert (secret in listed, "<i>bo</i>" in listed, "&lt;i&gt;bo" in listed) == (False, False, True)
        assert secret not in await admin.page("/audit")

    async def test_a_token_is_revoked(self, app: Tidemill, admin: PageClient) -> None:
        issued = await app.auth.tokens.create("bo", Role.VIEWER)
        assert await admin.does(f"/tokens/{issued.token.id}/revoke") == "/tokens"
        assert await app.auth.tokens.user(issued.secret) is None
        assert "revoked" in visible_text(await admin.page("/tokens"))
        assert (await admin.send("/tokens/none/revoke")).status == 404
        assert (await admin.send("/tokens", {"name": "bo", "role": "public"})).status == 422

    async def test_only_admins_see_tokens(self, app: Tidemill, kit: AsyncKit) -> None:
        operator = PageClient(app, Role.OPERATOR)
        for path in ("/tokens", "/audit"):
            assert (await operator.get(path)).status == 403
        assert 'href="/tokens"' not in await operator.page("/plan")


class TestAudit:
    async def test_the_audit_log_shows_users_and_actions(self, app: Tidemill, admin: PageClient) -> None:
        assert "No entries yet" in await admin.page("/audit")
        await admin.send("/tokens", {"name": "bo", "role": "viewer"})
        await PageClient(app, Role.VIEWER).send("/tokens", {"name": "me", "role": "admin"})
        shown = visible_text(await admin.page("/audit"))
        assert re.search(r"ann POST /tokens refused needs admin 127\.0\.0\.1", shown)
        assert re.search(r"ann POST /tokens name bo role viewer done 127\.0\.0\.1", shown)
        assert "needs admin" not in visible_text(await admin.page("/audit?outcome=done"))

    async def test_the_next_page_continues_after_the_last(
        self, app: Tidemill, admin: PageClient, kit: AsyncKit
    ) -> None:
        for number in range(101):
            await app.auth.audit.write(User("bo", Role.ADMIN), "token create", {"number": number})
            kit.advance(1)
        [following] = re.findall(r'href="(/audit\?cursor=[^"]+)"', await admin.page("/audit"))
        last = visible_text(await admin.page(following))
        assert ("number 0 " in last, "number 1 " in last) == (True, False)


class TestAlerts:
    async def test_rules_and_channels(self, app: Tidemill, admin: PageClient, kit: AsyncKit) -> None:
        empty = await admin.page("/alerts")
        assert "No channels configured" in empty
        app.alert("feeds wait", on="queue_length", queue="feeds", above=1000, clear=500)
        shown = visible_text(await admin.page("/alerts"))
        assert "feeds wait ready and scheduled jobs 1,000 500" in shown
        await admin.does("/alerts/test")
        assert admin.notice == "No channel is configured; nothing was sent."

    async def test_webhooks_are_added_tested_and_removed(
        self, app: Tidemill, admin: PageClient, kit: AsyncKit
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
        assert "shop by ann https://shop.example/hook job.done flow.ended" in visible_text(
            await admin.page("/alerts")
        )
        assert (await admin.does("/webhooks/shop/test")).startswith("/jobs/")
        assert "shop.example" not in await PageClient(app, Role.OPERATOR).page("/alerts")
        page = await alerts_page(
            RouteRequest(
                app=app,
                inspect=RedactedInspector(app),
                live_views=LiveViews(app.clock),
                user=User("bo", Role.OPERATOR),
            )
        )
        assert page.context["webhooks"] == [], "what is drawn again for viewers has them neither"
        await admin.does("/webhooks/shop/remove")
        assert await app.webhooks.list() == []
        assert (await admin.send("/webhooks", [("name", "bad"), ("url", "ftp://x")])).status == 422
