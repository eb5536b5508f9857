"""Lanes and groups that a pool refused: who is passed over, and what opens them."""

# ruff: noqa: S101 - a test suite asserts
from __future__ import annotations

import pytest

from tidemill.contract.wakeups import queue_topic
from tidemill.core.batching import Batching
from tidemill.core.changes import Cancel, Change, Delete
from tidemill.core.limits import Limit, Per
from tidemill.core.outcomes import Done, Release
from tidemill.core.pools import PoolChanges, PoolSettings
from tidemill.core.queues import QueueSettings
from tidemill.core.spending import Observation
from tidemill.core.uniqueness import Unique
from tidemill.testing.conformance.driver import Driver, ids, need, new, using
from tidemill.testing.conformance.waking import AT_MOST, armed


def keyed(amount: float, per: Per = "hour", held_back: float = 0.0) -> PoolSettings:
    return PoolSettings(limits=(Limit.requests(amount, per=per),), keyed=True, held_back=held_back)


async def say(drive: Driver, amount: float) -> None:
    """What the provider allows of the key in an hour."""
    seen = Observation(pool="s", key="k", amounts={"requests per hour": amount})
    await drive.store.observe([seen])


class TestShutLanes:
    async def test_p15_a_full_queue_lets_workers_rest_though_a_wait_is_over(self, drive: Driver) -> None:
        """A wait that is over is told once: else every idle worker would claim without end."""
        await drive.store.declare({"q": QueueSettings(concurrency=1)})
        await drive.store.declare_pools({"s": keyed(1, 10.0)})
        await drive.add(new("a", needs=(need("s", "x"),)))
        await drive.settle(await drive.take_one(), Done(), using("s", "x", requests=1))
        await drive.add(new("b", needs=(need("s", "x"),)))
        assert (await drive.claim()).next_due == pytest.approx(10.5, abs=0.1)
        await drive.add(new("long", priority=0))
        job = await drive.take_one()
        drive.clock.advance(60)
        assert [(await drive.claim("v")).next_due for _ in range(2)] == [None, None]
        await drive.settle(job)
        assert ids(await drive.take()) == ["b"]

    async def test_i1_lanes_that_open_while_a_claim_picks_are_met_once(self, drive: Driver) -> None:
        """The clock was set, and the claim that asks finds the override of a pool at its end."""
        await drive.store.declare_pools({"s": keyed(3), "t": keyed(1)})
        changes = PoolChanges(amounts={"requests per hour": 3.0})
        await drive.store.override_pool("s", changes, by="me", until=drive.clock.wall() + 5000)
        await drive.add(*[new(f"k{n}-{m}", needs=(need("s", f"k{n}"),)) for n in range(5) for m in range(4)])
        await drive.add(new("first", key="o", needs=(need("t", "t0"),)))
        await drive.take()
        await drive.add(*[new(f"z{m}", needs=(need("s", "z"),)) for m in range(2)])
        await drive.add(*[new(f"f{m}", key=f"f{m}", needs=(need("t", "t0"),)) for m in range(11)])
        drive.clock.step_wall(6000)
        assert ids(await drive.take(limit=2)) == ["z0", "z1"]

    async def test_p12_lanes_of_other_pools_are_other_lanes_whatever_the_names(self, drive: Driver) -> None:
        """Keys are often addresses, with every sign a list could be written with."""
        await drive.store.declare_pools({"p": keyed(9), "q": keyed(9), "p/x+q": keyed(9)})
        rule = Batching(max_items=5)
        await drive.add(
            new("a", batching=rule, needs=(need("p", "x"), need("q", "y"))),
            new("b", batching=rule, needs=(need("p", "x+q/y"),)),
            new("c", batching=rule, needs=(need("p/x+q", "y"),)),
            new("d", batching=rule, needs=(need("p", "x\\+q/y"),)),
        )
        assert [job.call for job in await drive.take()] == ["a", "b", "c", "d"]

    async def test_p12_a_group_is_shut_behind_a_lane_that_is_full(self, drive: Driver) -> None:
        """The more urgent lane has no room by its key: it is no reason to ask the pool again."""
        await drive.store.declare({"q": QueueSettings(key_concurrency=1)})
        await drive.store.declare_pools({"m": PoolSettings(limits=(Limit.requests(1, per="hour"),))})
        await drive.add(new("runs", key="k", priority=0), new("uses", needs=(need("m"),), priority=0))
        await drive.take()
        await drive.add(new("full", key="k", priority=3, needs=(need("m"),)))
        await drive.add(new("low", priority=9, needs=(need("m"),)))
        assert [(await drive.claim()).more for _ in range(3)] == [False] * 3

    async def test_p12_a_lane_opens_for_the_more_urgent_job_in_its_place(self, drive: Driver) -> None:
        await drive.store.declare_pools({"s": keyed(4, held_back=0.5)})
        await drive.add(*[new(f"x{n}", needs=(need("s", "a"),)) for n in range(2)])
        await drive.take()
        rule = Unique("k", on_conflict="replace")
        await drive.add(new("old", needs=(need("s", "a"),), unique=rule))
        assert await drive.take() == []
        await drive.add(new("urgent", needs=(need("s", "a"),), unique=rule, priority=0))
        assert ids(await drive.take()) == ["urgent"]

    async def test_p12_a_lane_opens_when_its_head_goes(self, drive: Driver) -> None:
        """The one behind it may need less."""
        await drive.store.declare_pools(
            {"s": PoolSettings(limits=(Limit.tokens(100, per=7200),), keyed=True)}
        )
        await drive.add(new("a", needs=(need("s", "k", tokens=50),)))
        await drive.settle(await drive.take_one(), Done(), using("s", "k", tokens=50))
        await drive.add(new("big", needs=(need("s", "k", tokens=90),)))
        await drive.add(new("small", needs=(need("s", "k", tokens=5),)))
        assert await drive.take() == []
        await drive.amend(Cancel(), "big")
        assert ids(await drive.take()) == ["small"]

    async def test_p15_a_limit_that_is_stated_higher_opens_the_lanes_that_wait(self, drive: Driver) -> None:
        await drive.store.declare_pools({"s": keyed(5)})
        await say(drive, 1)
        await drive.add(*[new(f"a{n}", needs=(need("s", "k"),)) for n in range(3)])
        assert ids(await drive.take()) == ["a0"]
        await say(drive, 3)
        drive.clock.advance(61)
        assert await drive.take() == [], "said once, it is not believed"
        await say(drive, 3)
        assert ids(await drive.take()) == ["a1", "a2"]

    async def test_b2_a_lane_waits_for_company_though_others_of_it_expired(self, drive: Driver) -> None:
        rule = Batching(max_items=5, linger=10.0)
        await drive.add(new("gone", batching=rule, expires=1.0), new("a", batching=rule))
        drive.clock.advance(2)
        claims = await drive.claim(shares=(("q", 0),))
        assert (claims.jobs, claims.lingers, claims.more) == ([], True, False)
        assert claims.next_due == pytest.approx(8)

    async def test_b5_a_job_that_left_its_batch_names_no_call(self, drive: Driver) -> None:
        rule, unique = Batching(max_items=2, linger=0.0), Unique("k", on_conflict="merge")
        await drive.add(new("a", batching=rule), new("b", batching=rule, unique=unique))
        for job in await drive.take():
            await drive.settle(job, Release())
        await drive.add(new("c", task="alone", unique=unique))
        for number in (50, 50):
            jobs = await drive.take(number=number)
            assert {job.id: job.call for job in jobs} == {"a": "a", "b": ""}

    @pytest.mark.parametrize("change", [Cancel(), Delete()])
    async def test_p15_a_job_that_ends_while_it_waits_keeps_no_place(
        self, drive: Driver, change: Change
    ) -> None:
        """Others of another queue are rung, and start."""
        await drive.store.declare_pools({"m": PoolSettings(limits=(Limit.tokens(1000, per="hour"),))})
        await drive.add(*[new(f"a{n}", needs=(need("m", tokens=50),)) for n in range(5)])
        for job in await drive.take():
            await drive.settle(job, Done(), using("m", tokens=50))
        await drive.add(new("big", needs=(need("m", tokens=900),)))
        for _ in range(2):
            assert await drive.take() == []
            drive.clock.advance(2)
        drive.clock.advance(60)
        await drive.add(new("small", needs=(need("m", tokens=150),)), queue="other")
        assert await drive.take(shares=(("other", 9),)) == [], "it would push the big one back"
        async with armed(drive, queue_topic("other")) as listener:
            await drive.amend(change, "big")
            assert await listener.wait(AT_MOST)
        assert ids(await drive.take(shares=(("other", 9),))) == ["small"]
