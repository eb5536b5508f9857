"""Calls in virtual time: delays, cuts, and callers that do not live to see the answer."""

from __future__ import annotations

import asyncio

import pytest

from tests.testing.providers.calling import chat, provider
from tidemill.testing import VirtualLoop, run_virtual
from tidemill.testing.providers import AnswerLost, Foreign, Quota

PLENTY = [Quota.rolling("requests", 10_000)]


def test_a_call_is_counted_within_the_jitter_and_answered_after_the_latency() -> None:
    async def scenario() -> None:
        used = provider("openai", PLENTY, jitter=0.5, latency=(2.0, 3.0))
        await asyncio.gather(*(used.call(chat("openai", mark=str(n))) for n in range(200)))
        counted = [arrival.at for arrival in used.ledger.arrivals]
        assert 0 <= min(counted) < 0.05
        assert 0.45 < max(counted) <= 0.5
        assert counted == sorted(counted)
        assert all(2 <= bill.at - bill.arrived <= 3.000001 for bill in used.ledger.bills)
        assert all(bill.answered for bill in used.ledger.bills)

    run_virtual(scenario())


def test_the_same_seed_is_the_same_history() -> None:
    def history(seed: int) -> list[float]:
        async def scenario() -> list[float]:
            others = (Foreign(per_second=1, end=5),)
            used = provider("openai", PLENTY, seed=seed, jitter=0.5, latency=(1, 9), foreign=others)
            await asyncio.gather(*(used.call(chat("openai")) for _ in range(20)))
            await used.until(20)
            return [*(one.at for one in used.ledger.arrivals), *(bill.at for bill in used.ledger.bills)]

        return run_virtual(scenario())

    assert history(3) == history(3) != history(4)


def test_an_answer_lost_after_billing_is_billed_and_unknown() -> None:
    async def scenario() -> None:
        used = provider("openai", PLENTY, lost=frozenset({2}))
        await used.call(chat("openai", mark="a"))
        with pytest.raises(AnswerLost):
            await used.call(chat("openai", mark="b"))
        await used.call(chat("openai", mark="b"))
        assert [bill.mark for bill in used.ledger.unknown] == ["b"]
        assert used.ledger.paid_again() == {"b": 1}

    run_virtual(scenario())


def test_a_share_of_answers_is_lost() -> None:
    async def scenario() -> int:
        used = provider("openai", PLENTY, lost_rate=0.1)
        await asyncio.gather(*(used.call(chat("openai")) for _ in range(500)), return_exceptions=True)
        return len(used.ledger.unknown)

    assert 25 < run_virtual(scenario()) < 80


def test_a_caller_that_gives_up_pays_all_the_same() -> None:
    async def scenario() -> None:
        used = provider("openai", PLENTY, jitter=0.5, latency=(5, 5))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(used.call(chat("openai")), 1)
        assert used.ledger.bills == []
        await used.until(6)
        assert len(used.ledger.unknown) == 1

    run_virtual(scenario())


@pytest.mark.parametrize("at", [0.0, 1.0])
def test_a_caller_that_is_killed_pays_all_the_same(at: float) -> None:
    """Killed on the way there, or while it waits for the answer."""

    async def scenario() -> None:
        used = provider("openai", PLENTY, jitter=0.5, latency=(5, 5))
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        process, _ = loop.spawn("caller", used.call(chat("openai")))
        await used.until(max(at, 0.000001))
        assert len(used.ledger.arrivals) == (at > 0)
        process.kill()
        await used.until(10)
        assert len(used.ledger.arrivals) == len(used.ledger.unknown) == 1

    run_virtual(scenario())


def test_a_provider_that_runs_faster_tells_waits_in_the_callers_time() -> None:
    async def scenario() -> None:
        used = provider("openai", [Quota.rolling("requests", 1)], scale=30)
        await used.call(chat("openai"))
        refusal = await used.call(chat("openai"))
        assert refusal.headers["retry-after-ms"] == "2000"
        await asyncio.sleep(2)
        assert used.now == 60
        assert (await used.call(chat("openai"))).status == 200

    run_virtual(scenario())


def test_standings_are_as_of_now() -> None:
    async def scenario() -> None:
        used = provider("openai", [Quota.rolling("requests", 3)], foreign=(Foreign(times=(5,)),))
        await used.call(chat("openai"))
        assert used.standings()[0].left == 2
        await used.until(5)
        assert used.standings()[0].left == 1
        await used.until(65)
        assert used.standings()[0].left == 3

    run_virtual(scenario())
