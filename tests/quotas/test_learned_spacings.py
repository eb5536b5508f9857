"""A site that allows one request a minute, although code declares one a second."""

from __future__ import annotations

import asyncio
import math
from itertools import pairwise
from typing import Any, Literal

import pytest

from tests.quotas.fleet import RARE_POLL_OPTIONS, Fleet, MakeStore, patch_poll_intervals, run_fleet
from tidemill import Context, Limit, Tidemill
from tidemill.testing.clocks import VirtualClock

MINUTE = 60.0
Counting = Literal["rolling", "fixed", "all requests"]


class Refused(Exception):
    """A 429 as an HTTP client raises it."""

    def __init__(self, headers: dict[str, str]) -> None:
        super().__init__("HTTP 429")
        self.status_code, self.headers, self.body = 429, headers, b""


class SlowSite:
    """A server that allows one request per minute and site.

    - `rolling`: a request is allowed one minute after the last allowed one.
    - `fixed`: one request is allowed in each minute of the clock, which starts at `phase`.
    - `all requests`: a request is allowed one minute after the last request, allowed or not."""

    def __init__(self, counting: Counting, header: str | None, phase: float = 0.0) -> None:
        self.counting, self.header, self.phase, self.clock = counting, header, phase, VirtualClock()
        self.allowed: list[float] = []
        self.refused: list[float] = []
        self._counted = -1e6

    async def request(self) -> None:
        await asyncio.sleep(0.2)
        now, reset = self.clock.boot(), self._reset()
        if now < reset:
            self.refused.append(now)
            if self.counting == "all requests":
                self._counted = now
            wait = math.ceil(self._reset() - now)
            raise Refused({} if self.header is None else {self.header: f"{wait}"})
        self.allowed.append(now)
        self._counted = now

    def _reset(self) -> float:
        if self.counting == "fixed":
            return (math.floor((self._counted - self.phase) / MINUTE) + 1) * MINUTE + self.phase
        return self._counted + MINUTE


def write_site_task(slow: SlowSite, other: list[float]) -> Any:
    def write(app: Tidemill) -> Any:
        site = app.pool("site", Limit.requests(1, per="second"), keyed=True)

        @app.task(name="fetch", pool=site.by(lambda host, _: host))
        async def fetch(ctx: Context, host: str, _: int) -> None:
            if host == "slow.example":
                await slow.request()
            else:
                other.append(slow.clock.boot())
            ctx.used((200, {}, b""))

        return fetch

    return write


async def crawl(slow: SlowSite, make: MakeStore, jobs: int = 60) -> float | None:
    """Fetches `jobs` pages of the slow site and 100 of another one. Returns the spacing that was learned for
    the slow site. The other site must keep its speed."""
    other: list[float] = []
    fleet = Fleet(write_site_task(slow, other), make, seed=3)
    async with fleet.app as app:
        await app.enqueue_many(fleet.task.job("slow.example", number) for number in range(jobs))
        await app.enqueue_many(fleet.task.job("fast.example", number) for number in range(100))
        fleet.start(2, concurrency=4, **RARE_POLL_OPTIONS)
        await fleet.drained(within=3 * 3600, every=10.0)
        [limit] = (await app.inspect.pool("site", key="slow.example")).limits
        assert (await app.inspect.pool("site", key="fast.example")).limits[0].spacing is None
    assert max(other) < 100 * 1.6
    return None if limit.spacing is None else limit.spacing.seconds


@pytest.mark.parametrize("header", ["x-ratelimit-reset", "retry-after"])
@pytest.mark.parametrize("counting", ["rolling", "fixed"])
def test_a_stated_reset_is_learned_from_two_refusals(
    header: str, counting: Counting, make_at_length: MakeStore
) -> None:
    async def scenario() -> SlowSite:
        slow = SlowSite(counting, header)
        assert await crawl(slow, make_at_length) == pytest.approx(60, rel=0.25)
        return slow

    with patch_poll_intervals():
        slow = run_fleet(scenario())
    assert len(slow.allowed) == 60
    assert max(slow.allowed) <= 65 * MINUTE
    after = slow.refused[1:]
    assert all(later - earlier > 3600 for earlier, later in pairwise(after)), after
    assert len(after) <= 2


@pytest.mark.parametrize(
    ("counting", "phase"),
    [("rolling", 0.0), ("all requests", 0.0), ("fixed", 0.0), ("fixed", 12.0), ("fixed", 24.0)],
)
def test_a_spacing_is_learned_without_any_header(
    counting: Counting, phase: float, make_at_length: MakeStore
) -> None:
    async def scenario() -> SlowSite:
        slow = SlowSite(counting, None, phase)
        assert await crawl(slow, make_at_length) in (48, 64), "64 s, or a test of 48 s after an hour"
        return slow

    with patch_poll_intervals():
        slow = run_fleet(scenario())
    assert len(slow.allowed) == 60
    assert max(slow.allowed) <= 100 * MINUTE
    learned = [at for at in slow.refused if at < 10 * MINUTE]
    assert 1 <= len(learned) <= 8, slow.refused
    later = slow.refused[len(learned) :]
    assert len(later) <= 1, later
