"""Calls and job starts in windows of real length, against a provider with the same clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.apps.music.virtual_kit import PER_MINUTE, Bare, music_environment
from tidemill import Reason as Why
from tidemill import TimeOfDay
from tidemill.testing.simulator import (
    Disruption,
    GeminiDialect,
    Quota,
    RefusalCause,
    SimulatorOptions,
    SimulatorReply,
)
from tidemill_apps.music.limits import classify_hintless_429
from tidemill_apps.music.pipeline_state import PipelineStage
from tidemill_apps.music.settings import CallSettings


async def test_with_the_right_limits_nothing_is_refused_and_four_calls_a_minute_are_used(
    tmp_path: Path,
) -> None:
    async with music_environment(tmp_path, 120) as env:
        await env.start()
        took = await env.run_until_idle(step=60.0)
        assert await env.counts() == {"COMPLETED": 120}
        assert env.provider.request_log.refused == []
        assert len(env.provider.request_log.bills) == 24
        assert env.provider.request_log.max_units_in_window("requests", 60) <= PER_MINUTE
        assert took <= 6 * 60


async def test_a_limit_that_is_set_too_high_is_refused_once(tmp_path: Path) -> None:
    async with music_environment(
        tmp_path, 100, calls=CallSettings(per_minute=15, per_day=0), metadata_starts=20
    ) as env:
        await env.start()
        await env.run_until_idle()
        assert await env.counts() == {"COMPLETED": 100}
        assert len(env.provider.request_log.refused) == 1
        assert len(env.provider.request_log.bills) == 20
        assert env.provider.request_log.duplicate_payments() == {}


async def test_three_queues_are_one_account(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 60) as env:
        await env.start(work="metadata", limit=20)
        await env.run_until_idle()
        assert await env.counts() == {"PENDING": 40, "DESCRIBED": 20}
        await env.start(work="metadata", limit=20)
        await env.start(work="full")
        await env.run_until_idle()
        assert await env.counts() == {"DESCRIBED": 20, "COMPLETED": 40}
        assert env.provider.request_log.refused == []
        assert env.provider.request_log.max_units_in_window("requests", 60) <= PER_MINUTE


async def test_a_refusal_that_says_nothing_closes_everything_for_two_minutes_and_costs_no_attempt(
    tmp_path: Path,
) -> None:
    """`Bare` answers 429 without details, as proxies do."""
    async with music_environment(
        tmp_path, 10, options=SimulatorOptions(disruptions=(Disruption(RefusalCause.RATE, 0.0, 30.0),))
    ) as env:
        env.provider.dialect = Bare()
        await env.start()
        state = await env.pipeline.load_state()
        assert state.stage is PipelineStage.BREAKER
        assert state.breaker is not None
        assert state.breaker.until == pytest.approx(env.kit.now + 120, abs=1)
        await env.kit.run_for(119)
        assert await env.stage() is PipelineStage.BREAKER
        await env.run_until_idle(300)
        assert await env.counts() == {"COMPLETED": 10}


async def test_a_day_that_is_gone_is_over_five_minutes_after_midnight_there(tmp_path: Path) -> None:
    zone = "America/Los_Angeles"
    quotas = (Quota.rolling("requests", PER_MINUTE), Quota.day("requests", 10, zone=zone))
    async with music_environment(
        tmp_path, 80, quotas=quotas, calls=CallSettings(per_minute=5, per_day=250)
    ) as env:
        await env.start()
        await env.kit.run_for(1800)
        state = await env.pipeline.load_state()
        midnight = TimeOfDay(0, 0, zone).after(env.kit.now)
        assert state.stage is PipelineStage.BREAKER
        assert state.breaker is not None
        assert state.breaker.until == midnight + 300
        await env.run_until_idle(86_400 * 2, step=3600)
        assert await env.counts() == {"COMPLETED": 80}
        assert len(env.provider.request_log.bills) == 16


async def test_a_used_up_daily_limit_is_shown_without_a_refusal(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 40, calls=CallSettings(per_minute=5, per_day=4)) as env:
        await env.start()
        await env.kit.run_for(600)
        state = await env.pipeline.load_state()
        assert state.stage is PipelineStage.BREAKER
        assert state.breaker is not None
        assert state.breaker.reason == "all 4 calls of the day are used"
        assert state.breaker.until is not None
        assert state.breaker.until > env.kit.now + 600
        assert env.provider.request_log.refused == []


async def test_a_time_of_day_may_be_set_instead(tmp_path: Path) -> None:
    quotas = (Quota.day("requests", 2, zone="America/Los_Angeles"),)
    async with music_environment(tmp_path, 30, quotas=quotas, resume_at="16:30 Asia/Shanghai") as env:
        await env.start()
        await env.kit.run_for(600)
        breaker = (await env.pipeline.load_state()).breaker
        assert breaker is not None
        assert breaker.until == TimeOfDay(16, 30, "Asia/Shanghai").after(env.kit.now)


@pytest.mark.parametrize(
    ("text", "headers"),
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
def test_a_429_with_a_hint_is_left_to_the_provider_s_classifier(text: str, headers: dict[str, str]) -> None:
    refused = httpx2.Response(429, headers=headers, text=text)
    assert classify_hintless_429(refused, 120.0) is None


@pytest.mark.parametrize(
    ("text", "then"),
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
def test_a_bare_429_pauses_two_minutes_and_the_day_only_if_it_names_a_quota(
    text: str, then: Why | None
) -> None:
    refusal = classify_hintless_429(httpx2.Response(429, text=text), 120.0)
    assert refusal is not None
    assert (refusal.retry_after, refusal.then) == (120.0, then)


async def test_many_bare_refusals_do_not_close_the_day(tmp_path: Path) -> None:
    trouble = SimulatorOptions(disruptions=(Disruption(RefusalCause.RATE, 0.0, 1_500.0),))
    async with music_environment(
        tmp_path, 10, options=trouble, calls=CallSettings(per_minute=5, per_day=250)
    ) as env:
        env.provider.dialect = Bare()
        await env.start()
        await env.kit.run_for(1_500, check=False)
        assert len(env.provider.request_log.refused) >= 3
        breaker = (await env.pipeline.load_state()).breaker
        assert breaker is not None
        assert breaker.until is not None
        assert breaker.until < env.kit.now + 3_600
        await env.run_until_idle(7_200)
        assert await env.counts() == {"COMPLETED": 10}


async def test_openai_s_refusal_is_read_in_its_own_words(tmp_path: Path) -> None:
    """A used-up minute closes the pool for one minute: not for two, and not for a day when it happens
    again."""
    async with music_environment(
        tmp_path, 40, calls=CallSettings(per_minute=15, per_day=0), metadata_starts=20
    ) as env:
        env.provider.dialect = SaysWhen()
        await env.start()
        state = await env.pipeline.load_state()
        assert state.breaker is not None
        assert state.breaker.until is not None
        assert state.breaker.until <= env.kit.now + 60
        await env.run_until_idle(600)
        assert await env.counts() == {"COMPLETED": 40}


def test_429_in_an_id_is_no_refusal() -> None:
    assert classify_hintless_429(ValueError("song 42901 has no title"), 120.0) is None


class SaysWhen(GeminiDialect):
    """Refuses like OpenAI without its headers."""

    def refuse(self, asked: Any, told: Any) -> SimulatorReply:
        text = "Rate limit reached on requests per min (RPM): Limit 5. Please try again in 20s."
        return SimulatorReply(
            429, {}, {"error": {"message": text, "type": "requests", "code": "rate_limit_exceeded"}}
        )
