"""A week of virtual time against real HTTP: sites count what they asked for, and what they got."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from aiohttp import web

from tests.apps.feeds.feed_server import FeedServer, SeenRequest, answer_rss, feed_server
from tests.apps.feeds.politeness import score
from tests.apps.feeds.service_kit import QUICK_SETTINGS
from tidemill import Tidemill, testing
from tidemill_apps.feeds.due_times import DAY_SECONDS
from tidemill_apps.feeds.feed_store import NewFeed
from tidemill_apps.feeds.fetcher import Fetcher
from tidemill_apps.feeds.parser_process import FeedParser
from tidemill_apps.feeds.refresh import FetchTools
from tidemill_apps.feeds.service import Feeds
from tidemill_apps.feeds.settings import FeedsSettings

HOUR, MINUTES = 3600.0, 240
REQUESTED_WAITS = {
    "/age": 10 * HOUR,
    "/ttl": 8 * HOUR,
    "/busy": 12 * HOUR,
    "/refused": 6 * HOUR,
    "/gone": 7 * DAY_SECONDS,
}
"""How long each path asks its readers to wait."""


def declare_answers(server: FeedServer) -> None:
    def with_age(seen: SeenRequest) -> web.Response:
        answer = server.answer_with_etag(seen)
        answer.headers["cache-control"] = f"max-age={REQUESTED_WAITS['/age']:.0f}"
        return answer

    def with_ttl(seen: SeenRequest) -> web.Response:
        if seen.headers.get("if-none-match") == '"ttl"':
            return web.Response(status=304, headers={"etag": '"ttl"', "cache-control": "max-age=28800"})
        return answer_rss("ttl", "1", extra="<ttl>480</ttl>", etag='"ttl"')

    def refuse(status: int) -> web.Response:
        wait = REQUESTED_WAITS["/busy" if status == 503 else "/refused"]
        return web.Response(status=status, headers={"retry-after": f"{wait:.0f}"})

    server.answers |= {
        "/age": with_age,
        "/ttl": with_ttl,
        "/busy": lambda _: refuse(503),
        "/refused": lambda _: refuse(429),
        "/gone": lambda _: web.Response(status=410),
        "/down": lambda _: web.Response(status=404),
    }


@pytest.mark.timeout(120)
async def test_a_week_is_polite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {**QUICK_SETTINGS, "site_seconds": 1.0, "jitter": 1.0, "check_seconds": 3600.0}
    app = Tidemill(f"sqlite:///{tmp_path}/jobs.db")
    feeds = Feeds(app, FeedsSettings(database_url=f"sqlite:///{tmp_path}/feeds.db", **settings))
    async with (
        Fetcher(feeds.settings.fetch_limits) as fetcher,
        FeedParser() as parser,
        testing.kit(app, state=FetchTools(fetcher, parser)) as kit,
        feed_server(kit.clock.wall) as server,
    ):
        await feeds.store.prepare()
        declare_answers(server)
        paths = [*REQUESTED_WAITS, "/down", "/plain"]
        hosts = {path: f"127.0.3.{number + 1}" for number, path in enumerate(paths)}
        new = [NewFeed(url=server.url(path, host), refresh_interval=MINUTES) for path, host in hosts.items()]
        await feeds.add(new)
        for _ in range(7):
            await kit.run_for(DAY_SECONDS, check=False)
        assert len(server.requests("/plain")) == pytest.approx(7 * 24 / 4, abs=2)
        assert len(server.requests("/gone")) <= 2
        gaps = [after.began - before.began for before, after in pairwise(server.requests("/down"))]
        assert max(gaps) == pytest.approx(DAY_SECONDS, abs=60)
        found = score(
            [seen for seen in server.log if seen.path not in ("/busy", "/refused", "/gone", "/down")],
            site_seconds=1.0,
            wrong_validators=server.wrong_validators,
            most_at_once=server.most_at_once,
            not_before=REQUESTED_WAITS,
        )
        refused = score(
            [seen for seen in server.log if seen.path in ("/busy", "/refused", "/gone")],
            site_seconds=1.0,
            wrong_validators=0,
            most_at_once={},
            not_before=REQUESTED_WAITS,
        )
        with capsys.disabled():
            print(f"\na simulated week, {len(paths)} feeds")
            print(found.table())
        assert found.is_polite
        assert (refused.early, refused.crowded) == (0, 0)
        await feeds.close()
