"""Sixty feeds of one site that allows one request a minute, in virtual time against real HTTP (S2, S3)."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest
from aiohttp import web

from tests.apps.feeds.feed_server import FeedServer, SeenRequest, feed_server
from tests.apps.feeds.service_kit import FULL_SIZE, QUICK_SETTINGS
from tidemill import Tidemill, testing
from tidemill.testing import AsyncKit
from tidemill_apps.feeds.feed_store import NewFeed
from tidemill_apps.feeds.fetcher import Fetcher
from tidemill_apps.feeds.parser_process import FeedParser
from tidemill_apps.feeds.refresh import FetchTools
from tidemill_apps.feeds.service import Feeds
from tidemill_apps.feeds.settings import FeedsSettings

MINUTE, HOUR = 60.0, 3600.0
STRICT_FEEDS, STRICT_HOST = 60, "127.0.5.1"
STRICT_PATHS = [f"/strict/{number}" for number in range(STRICT_FEEDS)]
OTHER_FEEDS = {f"/other/{number}": f"127.0.6.{number}" for number in range(1, 11)}
"""Paths and hosts of feeds of other sites."""
STRICT_MINUTES, OTHER_MINUTES = 60, 30
RUN_HOURS = 10 if FULL_SIZE else 3
LATENCY_SECONDS = 0.2
SETTINGS = {**QUICK_SETTINGS, "site_seconds": 1.0, "jitter": 1.0, "check_seconds": 300.0}
pytestmark = pytest.mark.timeout(60 * RUN_HOURS)


class StrictSite:
    """A site that allows one request a minute. With `header`, its answers state how many requests remain, and
    after how many seconds the next one is allowed. Times are seconds since the start of the test."""

    def __init__(self, server: FeedServer, kit: AsyncKit, *, header: bool) -> None:
        self._server, self._kit, self._header = server, kit, header
        self._start, self._reset = kit.clock.wall(), 0.0
        self.first_refreshes: dict[str, float] = {}
        self.refusals: list[float] = []

    def answer(self, seen: SeenRequest) -> web.Response:
        self._kit.advance(LATENCY_SECONDS)
        now = self._kit.clock.wall() - self._start
        if now < self._reset:
            self.refusals.append(now)
            answer = web.Response(status=429)
        else:
            self._reset = now + MINUTE
            self.first_refreshes.setdefault(seen.path, now)
            answer = self._server.answer_with_etag(seen)
        if self._header:
            reset = f"{math.ceil(self._reset - now)}"
            answer.headers.update({"x-ratelimit-remaining": "0", "x-ratelimit-reset": reset})
        return answer


async def refresh_for_hours(folder: Path, *, header: bool) -> StrictSite:
    """Refreshes all feeds for some hours. The feeds of other sites must be refreshed at their time."""
    app = Tidemill(f"sqlite:///{folder}/jobs.db")
    feeds = Feeds(app, FeedsSettings(database_url=f"sqlite:///{folder}/feeds.db", **SETTINGS))
    async with (
        Fetcher(feeds.settings.fetch_limits) as fetcher,
        FeedParser() as parser,
        testing.kit(app, state=FetchTools(fetcher, parser)) as kit,
        feed_server(kit.clock.wall) as server,
    ):
        strict = StrictSite(server, kit, header=header)
        server.answers |= dict.fromkeys(STRICT_PATHS, strict.answer)
        urls = [(server.url(path, STRICT_HOST), STRICT_MINUTES) for path in STRICT_PATHS]
        urls += [(server.url(path, host), OTHER_MINUTES) for path, host in OTHER_FEEDS.items()]
        await feeds.add([NewFeed(url=url, refresh_interval=minutes) for url, minutes in urls])
        await kit.run_for(RUN_HOURS * HOUR)
        await feeds.close()
    for path in OTHER_FEEDS:
        times = [seen.began for seen in server.requests(path)]
        assert len(times) == RUN_HOURS * HOUR / (OTHER_MINUTES * MINUTE)
        gaps = [after - before for before, after in pairwise(times)]
        assert gaps == pytest.approx([OTHER_MINUTES * MINUTE] * len(gaps), abs=2.0)
    return strict


async def test_a_stated_reset_is_learned_from_two_refusals_s2_s3(tmp_path: Path) -> None:
    strict = await refresh_for_hours(tmp_path, header=True)
    assert set(strict.first_refreshes) == set(STRICT_PATHS)
    assert max(strict.first_refreshes.values()) <= 65 * MINUTE
    assert 1 <= len([at for at in strict.refusals if at < HOUR]) <= 2, strict.refusals
    assert all(after - before > HOUR for before, after in pairwise(strict.refusals[1:])), strict.refusals


async def test_the_spacing_of_a_strict_site_is_learned_without_a_header_s2_s3(tmp_path: Path) -> None:
    strict = await refresh_for_hours(tmp_path, header=False)
    assert set(strict.first_refreshes) == set(STRICT_PATHS)
    assert max(strict.first_refreshes.values()) <= 100 * MINUTE
    learned = [at for at in strict.refusals if at < 10 * MINUTE]
    assert 1 <= len(learned) <= 8, strict.refusals
    later = strict.refusals[len(learned) :]
    assert all(after - before > HOUR for before, after in pairwise(later)), strict.refusals
