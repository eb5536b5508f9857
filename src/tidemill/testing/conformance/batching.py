"""Batches: when enough jobs wait, and which of them share a call."""

# ruff: noqa: S101, PLR2004 - a test suite asserts, and its numbers are its data
from __future__ import annotations

from typing import Any

import pytest

from tidemill.contract.wakeups import queue_topic
from tidemill.core import calls as core_calls
from tidemill.core.batching import Batching
from tidemill.core.changes import Cancel, RetryNow
from tidemill.core.claims import Claimed, Settlement
from tidemill.core.job import NewJob
from tidemill.core.limits import Limit
from tidemill.core.outcomes import Release, Retrying, Snooze, Split
from tidemill.core.pools import PoolSettings
from tidemill.testing.conformance.counting import Counted, counted
from tidemill.testing.conformance.driver import OOPS, Driver, ids, need, new
from tidemill.testing.conformance.waking import armed

FOUR = Batching(max_items=4, linger=10.0)
AT_ONCE = Batching(max_items=4)
MANY = PoolSettings(limits=(Limit.requests(1000, per="minute"),))


def batch(names: str, rule: Batching = FOUR, **options: Any) -> list[NewJob]:
    """A job for each letter."""
    return [new(name, batching=rule, **options) for name in names]


def calls(jobs: list[Claimed]) -> list[str]:
    """The ids of each call, joined. Its jobs stand together, and the first of them gives it its name."""
    found: list[list[Claimed]] = []
    for job in jobs:
        if not found or not job.call or found[-1][0].call != job.call:
            found.append([])
        found[-1].append(job)
    assert all(job.call in ("", call[0].id) for call in found for job in call)
    return ["".join(ids(call)) for call in found]


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """How often a lane of batches was looked at."""
    return counted(monkeypatch, core_calls, "begin")


class TestRipeness:
    async def test_b2_enough_jobs_start_at_once(self, drive: Driver) -> None:
        await drive.add(*batch("abcdef"))
        claims = await drive.claim()
        assert calls(claims.jobs) == ["abcd"]
        assert (claims.more, claims.lingers, claims.next_due) == (False, True, 10)

    async def test_b2_fewer_start_when_the_oldest_has_lingered(self, drive: Driver) -> None:
        await drive.add(*batch("ab"))
        drive.clock.advance(4)
        await drive.add(*batch("c"))
        claims = await drive.claim()
        assert (claims.jobs, claims.more, claims.lingers, claims.next_due) == ([], False, True, 6)
        drive.clock.advance(6)
        claims = await drive.claim()
        assert calls(claims.jobs) == ["abc"]
        assert (claims.more, claims.lingers, claims.next_due) == (False, False, None)

    async def test_b2_without_a_linger_nobody_waits(self, drive: Driver) -> None:
        await drive.add(*batch("abcdef", AT_ONCE))
        assert calls(await drive.take()) == ["abcd", "ef"]

    async def test_b2_units_make_a_batch_too(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": PoolSettings(limits=(Limit.tokens(10_000, per="minute"),))})
        rule = Batching(max_items=9, linger=10, max_units={"tokens": 100})

        def of(name: str, tokens: float) -> NewJob:
            return new(name, batching=rule, needs=(need("m", tokens=tokens),))

        await drive.add(of("a", 60), of("b", 30))
        assert await drive.take() == []
        await drive.add(of("c", 20), of("d", 100), of("e", 150), of("f", 1))
        assert calls(await drive.take()) == ["ab", "c", "d", "e"]
        drive.clock.advance(10)
        assert calls(await drive.take()) == ["f"]

    async def test_b2_the_last_one_missing_opens_the_lane(self, drive: Driver, looked: Counted) -> None:
        await drive.add(*batch("a"))
        assert (await drive.claim()).lingers
        assert looked.since() <= 1
        for name in "bc":
            await drive.add(*batch(name))
            claims = await drive.claim()
            assert (claims.jobs, claims.more) == ([], False)
        assert looked.since() == 0
        async with armed(drive, queue_topic("q")) as listener:
            await drive.add(*batch("d"))
            assert await listener.wait(5)
        assert calls(await drive.take()) == ["abcd"]

    async def test_b2_b6_a_call_that_is_split_leaves_those_who_wait_alone(
        self, drive: Driver, looked: Counted
    ) -> None:
        await drive.add(*batch("abcde"))
        called = await drive.take()
        assert calls(called) == ["abcd"]
        split = [Settlement(job.id, job.fence, job.claim, Split("1")) for job in called]
        await drive.store.settle(split)
        looked.since()
        assert calls(await drive.take()) == ["abcd"]
        assert looked.since() == 1, "only that of its part: nothing became of the lane they came from"

    async def test_b2_a_job_that_was_put_off_counts_when_it_is_due(self, drive: Driver) -> None:
        await drive.add(*batch("abc"), *batch("d", delay=5))
        claims = await drive.claim()
        assert (claims.jobs, claims.next_due) == ([], 5)
        drive.clock.advance(5)
        assert calls(await drive.take()) == ["abcd"]

    async def test_b2_a_lane_that_loses_a_job_waits_for_another(self, drive: Driver) -> None:
        await drive.add(*batch("abc"))
        assert await drive.take() == []
        await drive.amend(Cancel(), "b")
        await drive.add(*batch("d"))
        assert await drive.take() == []
        await drive.add(*batch("e"))
        assert calls(await drive.take()) == ["acde"]

    async def test_b2_whoever_is_left_waits_by_his_own_time(self, drive: Driver) -> None:
        """The others were waited for before; he was not."""
        await drive.add(*batch("a"))
        assert await drive.take() == []
        drive.clock.advance(5)
        await drive.add(*batch("bcde"))
        claims = await drive.claim()
        assert (calls(claims.jobs), claims.next_due) == (["abcd"], 10)
        drive.clock.advance(9)
        assert await drive.take() == []
        drive.clock.advance(1)
        assert calls(await drive.take()) == ["e"]

    async def test_b2_a_paused_queue_tells_of_nobody(self, drive: Driver) -> None:
        await drive.add(*batch("ab"))
        assert (await drive.claim()).lingers
        await drive.store.pause("q")
        claims = await drive.claim()
        assert (claims.jobs, claims.lingers, claims.next_due) == ([], False, None)
        await drive.store.resume("q")
        drive.clock.advance(10)
        assert calls(await drive.take()) == ["ab"]

    async def test_b2_what_is_given_back_has_waited_before(self, drive: Driver) -> None:
        await drive.add(*batch("abcd"))
        for job in await drive.take():
            if job.id in "ab":
                await drive.settle(job, Release())
            else:
                await drive.settle(job)
        drive.clock.advance(9)
        assert await drive.take() == []
        drive.clock.advance(1)
        assert calls(await drive.take()) == ["ab"]

    async def test_b2_another_boot_looks_again(self, drive: Driver) -> None:
        await drive.add(*batch("ab", Batching(max_items=4, linger=100)))
        assert await drive.take() == []
        drive.clock.reboot(after=60)
        await drive.reopen()
        claims = await drive.claim()
        assert (claims.jobs, claims.lingers, claims.next_due) == ([], True, 40)
        drive.clock.advance(40)
        assert calls(await drive.take()) == ["ab"]

    @pytest.mark.parametrize("step", [-86_400, -3_600, -7, 7, 3_600, 86_400])
    async def test_b9_i26_a_stepped_clock_makes_nobody_wait_longer(self, drive: Driver, step: float) -> None:
        await drive.add(*batch("a"))
        assert await drive.take() == []
        drive.clock.advance(8)
        drive.clock.step_wall(step)
        await drive.add(*batch("b", priority=1))
        started = await drive.take()
        drive.clock.advance(2)
        started += await drive.take()
        assert ids(started) == ["b", "a"]

    @pytest.mark.parametrize("lanes", [10_000])
    async def test_b2_lanes_that_wait_cost_nothing(self, drive: Driver, looked: Counted, lanes: int) -> None:
        """Whoever asks is told at once, and what else there is starts."""
        for start in range(0, lanes, 1000):
            some = range(start, start + 1000)
            await drive.add(*[new(f"{n:05}", key=f"k{n}", batching=FOUR) for n in some])
        while (await drive.claim(limit=8)).more:
            pass
        assert looked.since() <= lanes
        await drive.add("plain", new("keyed", key="k7"))
        assert ids(await drive.take(limit=8)) == ["plain", "keyed"]
        for _ in range(9):
            drive.clock.advance(1)
            assert await drive.take(limit=8) == []
        assert looked.since() == 0
        await drive.add(*[new(f"{n:05}.{i}", key=f"k{n}", batching=FOUR) for n in (7, 8) for i in range(3)])
        claims = await drive.claim(limit=8)
        assert [len(claims.jobs), claims.more, claims.lingers] == [8, False, True]
        assert looked.since() <= 2
        assert {job.call for job in claims.jobs} == {"00007", "00008"}


class TestCompany:
    async def test_b1_only_jobs_of_one_lane_share_a_call(self, drive: Driver) -> None:
        """Not across keys, pools, keys of pools, tasks or queues, and not with jobs of no batch."""
        await drive.store.declare_pools({"m": MANY, "site": PoolSettings(limits=MANY.limits, keyed=True)})
        for at in "12":
            await drive.add(
                new(f"k{at}", key="k", batching=AT_ONCE),
                new(f"l{at}", key="l", batching=AT_ONCE),
                new(f"m{at}", needs=(need("m"),), batching=AT_ONCE),
                new(f"s{at}", needs=(need("site", "s"),), batching=AT_ONCE),
                new(f"t{at}", needs=(need("site", "t"),), batching=AT_ONCE),
                new(f"o{at}", task="other", batching=AT_ONCE),
                new(f"p{at}", batching=AT_ONCE),
            )
        await drive.add(new("q1", batching=AT_ONCE), queue="r")
        await drive.add(new("n1"), new("n2"))
        taken = await drive.take(shares=(("q", 100), ("r", 100)))
        assert set(calls(taken)) == {f"{lane}1{lane}2" for lane in "klmstop"} | {"q1", "n1", "n2"}

    async def test_b1_the_order_of_the_lane_is_the_order_of_the_call(self, drive: Driver) -> None:
        await drive.add(*batch("abcd"), *batch("e", priority=1))
        assert calls(await drive.take()) == ["eabc"]

    async def test_b1_the_first_ones_rule_decides(self, drive: Driver) -> None:
        await drive.add(*batch("ab", Batching(max_items=2, linger=99)))
        await drive.add(*batch("cdefg", Batching(max_items=3, linger=99)))
        assert calls(await drive.take()) == ["ab", "cde"]

    async def test_b1_a_turn_is_a_call(self, drive: Driver) -> None:
        """Lanes take turns, however many jobs each call takes."""
        await drive.add(*batch("abcdef", Batching(max_items=2)), new("x", key="k"), new("y", key="l"))
        taken = await drive.take()
        assert calls(taken) == ["ab", "x", "y", "cd", "ef"]

    async def test_b5_a_repeated_claim_keeps_calls_together(self, drive: Driver) -> None:
        """Also when jobs of two calls came by turns, and the most urgent came last."""
        await drive.add(*[new(f"{lane}{n}", key=lane, batching=AT_ONCE) for n in range(3) for lane in "ab"])
        await drive.add(new("b9", key="b", batching=AT_ONCE, priority=1), "plain")
        request = drive.request()
        first = (await drive.store.claim(request)).jobs
        again = (await drive.store.claim(request)).jobs
        assert calls(first) == ["b9b0b1b2", "a0a1a2", "plain"]
        assert sorted(calls(again)) == sorted(calls(first))
        assert {job.id: job for job in again} == {job.id: job for job in first}

    async def test_b8_by_ids_a_job_goes_alone(self, drive: Driver) -> None:
        await drive.add(*batch("abc"))
        assert await drive.take() == []
        claims = await drive.claim(named="ba", shares=(), limit=2)
        assert calls(claims.jobs) == ["b", "a"]
        assert (await drive.claim(named="c", shares=(), limit=0)).blocked == ("c",)
        drive.clock.advance(10)
        assert calls(await drive.take()) == ["c"]


class TestSplits:
    async def test_b6_parts_come_back_apart_and_at_once(self, drive: Driver) -> None:
        await drive.add(*batch("abcd"))
        before = {job.id: await drive.job(job.id) for job in await drive.take()}
        for name, job in before.items():
            claimed = await self.held(drive, name)
            await drive.settle(claimed, Split("1" if name in "ab" else "2"))
            after = await drive.job(name)
            assert (after.seq, after.attempts, after.due) == (job.seq, 0, job.due)
        await drive.add(*batch("e"))
        taken = await drive.take()
        assert calls(taken) == ["ab", "cd"]
        assert [job.part for job in taken] == ["1", "1", "2", "2"]
        assert [job.attempt for job in taken] == [1] * 4

    async def held(self, drive: Driver, name: str) -> Claimed:
        return next(job for job in await drive.take(number=drive.numbers["w"]) if job.id == name)

    @pytest.mark.parametrize("outcome", [Release(), Snooze(0), Retrying(0, OOPS)])
    async def test_b6_it_keeps_to_its_part(self, drive: Driver, outcome: Release | Snooze | Retrying) -> None:
        await drive.add(*batch("abcd"))
        for job in await drive.take():
            await drive.settle(job, Split(job.id))
        for job in await drive.take():
            await drive.settle(job, outcome)
        assert sorted(calls(await drive.take())) == ["a", "b", "c", "d"]

    async def test_b6_a_persons_retry_joins_the_others(self, drive: Driver) -> None:
        await drive.add(*batch("ab", AT_ONCE))
        for job in await drive.take():
            await drive.settle(job, Split(job.id))
        for job in await drive.take():
            await drive.settle(job)
        await drive.amend(RetryNow(), "a", "b")
        assert calls(await drive.take()) == ["ab"]
        assert (await drive.job("a")).part == ""

    async def test_b6_a_part_is_split_again(self, drive: Driver) -> None:
        await drive.add(*batch("abcd"))
        for job in await drive.take():
            await drive.settle(job, Split("left" if job.id in "abc" else "right"))
        for job in await drive.take():
            await drive.settle(job, Split(job.part if job.id == "d" else f"left/{job.id == 'c'}"))
        assert sorted(calls(await drive.take())) == ["ab", "c", "d"]
