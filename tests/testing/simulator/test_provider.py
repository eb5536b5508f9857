"""Calls in virtual time: delays, lost replies, and callers that die before the reply."""

from __future__ import annotations

import asyncio

import pytest

from tests.testing.simulator.client_requests import chat_request, create_provider
from tidemill.testing import VirtualLoop, run_virtual
from tidemill.testing.simulator import ExternalTraffic, LostReply, Quota

PLENTY = [Quota.rolling("requests", 10_000)]


def test_a_call_is_counted_within_the_jitter_and_answered_after_the_latency() -> None:
    async def scenario() -> None:
        used = create_provider("openai", PLENTY, jitter=0.5, latency=(2.0, 3.0))
        await asyncio.gather(*(used.call(chat_request("openai", mark=str(n))) for n in range(200)))
        counted = [arrival.at for arrival in used.request_log.arrivals]
        assert 0 <= min(counted) < 0.05
        assert 0.45 < max(counted) <= 0.5
        assert counted == sorted(counted)
        assert all(2 <= bill.at - bill.arrived <= 3.000001 for bill in used.request_log.bills)
        assert all(bill.answered for bill in used.request_log.bills)

    run_virtual(scenario())


def test_the_same_seed_is_the_same_history() -> None:
    def history(seed: int) -> list[float]:
        async def scenario() -> list[float]:
            others = (ExternalTraffic(per_second=1, end=5),)
            used = create_provider("openai", PLENTY, seed=seed, jitter=0.5, latency=(1, 9), external=others)
            await asyncio.gather(*(used.call(chat_request("openai")) for _ in range(20)))
            await used.until(20)
            return [
                *(one.at for one in used.request_log.arrivals),
                *(bill.at for bill in used.request_log.bills),
            ]

        return run_virtual(scenario())

    assert history(3) == history(3) != history(4)


def test_an_answer_lost_after_billing_is_billed_and_unknown() -> None:
    async def scenario() -> None:
        used = create_provider("openai", PLENTY, lost=frozenset({2}))
        await used.call(chat_request("openai", mark="a"))
        with pytest.raises(LostReply):
            await used.call(chat_request("openai", mark="b"))
        await used.call(chat_request("openai", mark="b"))
        assert [bill.mark for bill in used.request_log.unknown] == ["b"]
        assert used.request_log.duplicate_payments() == {"b": 1}

    run_virtual(scenario())


def test_a_share_of_answers_is_lost() -> None:
    async def scenario() -> int:
        used = create_provider("openai", PLENTY, lost_rate=0.1)
        await asyncio.gather(*(used.call(chat_request("openai")) for _ in range(500)), return_exceptions=True)
        return len(used.request_log.unknown)

    assert 25 < run_virtual(scenario()) < 80


def test_a_caller_that_gives_up_pays_all_the_same() -> None:
    async def scenario() -> None:
        used = create_provider("openai", PLENTY, jitter=0.5, latency=(5, 5))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(used.call(chat_request("openai")), 1)
        assert used.request_log.bills == []
        await used.until(6)
        assert len(used.request_log.unknown) == 1

    run_virtual(scenario())


@pytest.mark.parametrize("at", [0.0, 1.0])
def test_a_caller_that_is_killed_pays_all_the_same(at: float) -> None:
    """Killed on the way to the provider, or while it waits for the reply."""

    async def scenario() -> None:
        used = create_provider("openai", PLENTY, jitter=0.5, latency=(5, 5))
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        process, _ = loop.spawn("caller", used.call(chat_request("openai")))
        await used.until(max(at, 0.000001))
        assert len(used.request_log.arrivals) == (at > 0)
        process.kill()
        await used.until(10)
        assert len(used.request_log.arrivals) == len(used.request_log.unknown) == 1

    run_virtual(scenario())


def test_a_scaled_provider_states_waits_in_the_caller_s_time() -> None:
    async def scenario() -> None:
        used = create_provider("openai", [Quota.rolling("requests", 1)], scale=30)
        await used.call(chat_request("openai"))
        refusal = await used.call(chat_request("openai"))
        assert refusal.headers["retry-after-ms"] == "2000"
        await asyncio.sleep(2)
        assert used.now == 60
        assert (await used.call(chat_request("openai"))).status == 200

    run_virtual(scenario())


def test_standings_are_as_of_now() -> None:
    async def scenario() -> None:
        used = create_provider(
            "openai", [Quota.rolling("requests", 3)], external=(ExternalTraffic(times=(5,)),)
        )
        await used.call(chat_request("openai"))
        assert used.quota_statuses()[0].left == 2
        await used.until(5)
        assert used.quota_statuses()[0].left == 1
        await used.until(65)
        assert used.quota_statuses()[0].left == 3

    run_virtual(scenario())
