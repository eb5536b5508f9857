"""Calls and job starts in windows of real length, against a provider that counts by the same clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.apps.music.world import PER_MINUTE, Bare, world
from tidemill import Reason as Why
from tidemill import TimeOfDay
from tidemill.testing.providers import Answer, Gemini, Options, Quota, Reason, Trouble
from tidemill_apps.music.refusals import without_hint
from tidemill_apps.music.settings import CallSettings
from tidemill_apps.music.standing import Stage


async def test_with_the_right_limits_nothing_is_refused_and_four_calls_a_minute_are_used(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, 120) as its:
        await its.start()
        took = await its.run_until_idle(step=60.0)
        assert await its.counts() == {"COMPLETED": 120}
        assert its.provider.ledger.refused == []
        assert len(its.provider.ledger.bills) == 24
        assert its.provider.ledger.busiest("requests", 60) <= PER_MINUTE
        assert took <= 6 * 60


async def test_a_limit_that_is_set_too_high_is_refused_once(tmp_path: Path) -> None:
    async with world(tmp_path, 100, calls=CallSettings(per_minute=15, per_day=0), metadata_starts=20) as its:
        await its.start()
        await its.run_until_idle()
        assert await its.counts() == {"COMPLETED": 100}
        assert len(its.provider.ledger.refused) == 1
        assert len(its.provider.ledger.bills) == 20
        assert its.provider.ledger.paid_again() == {}


async def test_three_queues_are_one_account(tmp_path: Path) -> None:
    async with world(tmp_path, 60) as its:
        await its.start(work="metadata", limit=20)
        await its.run_until_idle()
        assert await its.counts() == {"PENDING": 40, "DESCRIBED": 20}
        await its.start(work="metadata", limit=20)
        await its.start(work="full")
        await its.run_until_idle()
        assert await its.counts() == {"DESCRIBED": 20, "COMPLETED": 40}
        assert its.provider.ledger.refused == []
        assert its.provider.ledger.busiest("requests", 60) <= PER_MINUTE


async def test_a_refusal_that_says_nothing_closes_everything_for_two_minutes_and_costs_no_attempt(
    tmp_path: Path,
) -> None:
    """`Bare` answers 429 and nothing else, as proxies do."""
    async with world(tmp_path, 10, options=Options(troubles=(Trouble(Reason.RATE, 0.0, 30.0),))) as its:
        its.provider.dialect = Bare()
        await its.start()
        stands = await its.pipeline.standing()
        assert stands.stage is Stage.BREAKER
        assert stands.breaker is not None
        assert stands.breaker.until == pytest.approx(its.kit.now + 120, abs=1)
        await its.kit.run_for(119)
        assert await its.stage() is Stage.BREAKER
        await its.run_until_idle(300)
        assert await its.counts() == {"COMPLETED": 10}


async def test_a_day_that_is_gone_is_over_five_minutes_after_midnight_there(tmp_path: Path) -> None:
    zone = "America/Los_Angeles"
    quotas = (Quota.rolling("requests", PER_MINUTE), Quota.day("requests", 10, zone=zone))
    async with world(tmp_path, 80, quotas=quotas, calls=CallSettings(per_minute=5, per_day=250)) as its:
        await its.start()
        await its.kit.run_for(1800)
        stands = await its.pipeline.standing()
        midnight = TimeOfDay(0, 0, zone).after(its.kit.now)
        assert stands.stage is Stage.BREAKER
        assert stands.breaker is not None
        assert stands.breaker.until == midnight + 300
        await its.run_until_idle(86_400 * 2, step=3600)
        assert await its.counts() == {"COMPLETED": 80}
        assert len(its.provider.ledger.bills) == 16


async def test_a_day_that_is_counted_here_needs_no_refusal_to_be_told(tmp_path: Path) -> None:
    async with world(tmp_path, 40, calls=CallSettings(per_minute=5, per_day=4)) as its:
        await its.start()
        await its.kit.run_for(600)
        stands = await its.pipeline.standing()
        assert stands.stage is Stage.BREAKER
        assert stands.breaker is not None
        assert stands.breaker.reason == "all 4 calls of the day are used"
        assert stands.breaker.until is not None
        assert stands.breaker.until > its.kit.now + 600
        assert its.provider.ledger.refused == []


async def test_a_time_of_day_may_be_set_instead(tmp_path: Path) -> None:
    quotas = (Quota.day("requests", 2, zone="America/Los_Angeles"),)
    async with world(tmp_path, 30, quotas=quotas, resume_at="16:30 Asia/Shanghai") as its:
        await its.start()
        await its.kit.run_for(600)
        breaker = (await its.pipeline.standing()).breaker
        assert breaker is not None
        assert breaker.until == TimeOfDay(16, 30, "Asia/Shanghai").after(its.kit.now)


@pytest.mark.parametrize(
    ("said", "headers"),
    [
        ("quota exceeded, PerDay", {}),
        ("please retry in 20 s", {}),
        ("", {"Retry-After": "7"}),
        ("PerMinute", {}),
        ("", {"retry-after-ms": "900"}),
        ("Rate limit reached on requests per min (RPM): Limit 3, Used 3.", {}),
        ("Too many requests, please try again in 20s.", {}),
        (
            '{"error": {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}}',
            {},
        ),
        ('{"error": {"code": "1113", "message": "您的账户已欠费"}}', {}),
    ],
)
def test_whoever_says_more_is_left_to_who_knows_the_words(said: str, headers: dict[str, str]) -> None:
    refused = httpx2.Response(429, headers=headers, text=said)
    assert without_hint(refused, 120.0) is None


@pytest.mark.parametrize(
    ("said", "then"),
    [
        ("", None),
        ("too many", None),
        ('{"error": "too many"}', None),
        ("[1]", None),
        ('{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}', Why.DAY_QUOTA),
        ("You exceeded your current quota", Why.DAY_QUOTA),
        ("今日额度已用完", Why.DAY_QUOTA),
    ],
)
def test_a_bare_refusal_closes_for_so_long_and_the_day_only_with_words_of_a_quota(
    said: str, then: Why | None
) -> None:
    refusal = without_hint(httpx2.Response(429, text=said), 120.0)
    assert refusal is not None
    assert (refusal.retry_after, refusal.then) == (120.0, then)


async def test_many_bare_refusals_do_not_close_the_day(tmp_path: Path) -> None:
    trouble = Options(troubles=(Trouble(Reason.RATE, 0.0, 1_500.0),))
    async with world(tmp_path, 10, options=trouble, calls=CallSettings(per_minute=5, per_day=250)) as its:
        its.provider.dialect = Bare()
        await its.start()
        await its.kit.run_for(1_500, check=False)
        assert len(its.provider.ledger.refused) >= 3
        breaker = (await its.pipeline.standing()).breaker
        assert breaker is not None
        assert breaker.until is not None
        assert breaker.until < its.kit.now + 3_600
        await its.run_until_idle(7_200)
        assert await its.counts() == {"COMPLETED": 10}


async def test_openai_s_refusal_is_read_in_its_own_words(tmp_path: Path) -> None:
    """A minute that is used up is a minute: neither two of them, nor the day when it comes again."""
    async with world(tmp_path, 40, calls=CallSettings(per_minute=15, per_day=0), metadata_starts=20) as its:
        its.provider.dialect = SaysWhen()
        await its.start()
        stands = await its.pipeline.standing()
        assert stands.breaker is not None
        assert stands.breaker.until is not None
        assert stands.breaker.until <= its.kit.now + 60
        await its.run_until_idle(600)
        assert await its.counts() == {"COMPLETED": 40}


def test_429_in_an_id_is_no_refusal() -> None:
    assert without_hint(ValueError("song 42901 has no title"), 120.0) is None


class SaysWhen(Gemini):
    """Refuses as OpenAI does without its headers."""

    def refuse(self, asked: Any, told: Any) -> Answer:
        said = "Rate limit reached on requests per min (RPM): Limit 5. Please try again in 20s."
        return Answer(
            429, {}, {"error": {"message": said, "type": "requests", "code": "rate_limit_exceeded"}}
        )
