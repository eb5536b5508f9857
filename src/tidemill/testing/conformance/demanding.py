"""What ready jobs ask of pools, and what is known of each pool: a forecast is computed from both."""

# ruff: noqa: S101 - a test suite asserts, and its numbers are its data
from __future__ import annotations

from tidemill.core.accounts import Denied, ask
from tidemill.core.demand import SAMPLED, Demand
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.pools import PoolSettings, in_force
from tidemill.core.reserving import Ask
from tidemill.core.windows import Instant
from tidemill.testing.conformance.driver import Driver, new

MODEL = PoolSettings(limits=(Limit.requests(5, per="minute"), Limit.tokens(1_000_000, per="minute")))
SITE = PoolSettings(limits=(Limit.requests(2, per=10),), keyed=True)
EVERY_CALL = {"requests": 1.0, "jobs": 1.0, "concurrent": 1.0}


def tokens(amount: float) -> tuple[Need, ...]:
    return (Need("model", None, {"tokens": amount}),)


async def lines(drive: Driver) -> list[tuple[str, int, int, tuple[Need, ...]]]:
    return [(each.queue, each.priority, each.jobs, each.needs) for each in await drive.store.demand()]


class TestDemand:
    async def test_r10_jobs_without_pools_ask_for_nothing(self, drive: Driver) -> None:
        await drive.add("a", new("b", key="k"))
        assert await drive.store.demand() == []

    async def test_r10_by_queue_lane_and_priority(self, drive: Driver) -> None:
        await drive.store.declare_pools({"model": MODEL, "site": SITE})
        await drive.add(new("a", needs=tokens(100)), new("b", needs=tokens(300)))
        await drive.add(new("urgent", needs=tokens(500), priority=1))
        await drive.add(new("elsewhere", needs=tokens(7)), queue="p")
        await drive.add(new("one", needs=(Need("site", "x"),)), new("two", needs=(Need("site", "y"),)))
        assert sorted(await lines(drive), key=repr) == [
            ("p", 5, 1, (Need("model", None, EVERY_CALL | {"tokens": 7.0}),)),
            ("q", 1, 1, (Need("model", None, EVERY_CALL | {"tokens": 500.0}),)),
            ("q", 5, 1, (Need("site", "x", EVERY_CALL),)),
            ("q", 5, 1, (Need("site", "y", EVERY_CALL),)),
            ("q", 5, 2, (Need("model", None, EVERY_CALL | {"tokens": 200.0}),)),
        ]

    async def test_r10_only_what_is_ready(self, drive: Driver) -> None:
        await drive.store.declare_pools({"model": MODEL})
        await drive.add(
            new("later", needs=tokens(1), delay=60.0), *(new(f"{n}", needs=tokens(1)) for n in "ab")
        )
        assert [each.jobs for each in await drive.store.demand()] == [2]
        job = await drive.take_one()
        assert [each.jobs for each in await drive.store.demand()] == [1]
        await drive.settle(job)
        await drive.take()
        assert await drive.store.demand() == []

    async def test_r10_all_are_counted_and_the_first_are_averaged(self, drive: Driver) -> None:
        await drive.store.declare_pools({"model": MODEL})
        await drive.add(*(new(f"{n}", needs=tokens(10)) for n in range(SAMPLED)))
        await drive.add(new("last", needs=tokens(900_000)))
        (found,) = await drive.store.demand()
        assert isinstance(found, Demand)
        assert (found.jobs, found.needs[0].units["tokens"]) == (SAMPLED + 1, 10.0)


class TestAccounts:
    async def test_p7_every_wait_can_be_computed_from_a_view(self, drive: Driver) -> None:
        """The arithmetic on what is shown answers as the store does."""
        await drive.store.declare_pools({"model": MODEL, "site": SITE})
        await drive.add(*(new(f"{n}", needs=tokens(100)) for n in range(4)))
        await drive.add(new("key", needs=(Need("site", "x"),)))
        first, *_ = await drive.take()
        drive.clock.advance(7.0)
        model = Need("model", None, {"tokens": 2.0})
        for need in (model, Need("site", "x"), model):
            view = await drive.pool(need.pool, need.key)
            now = Instant(drive.clock.wall(), drive.clock.boot())
            settings = in_force(view.declared, view.override, now.wall)
            expected = ask(settings, view.account, Ask(first.id, need.units, first.priority), now)
            answer = await drive.store.reserve(first.id, first.fence, first.claim, need)
            assert answer == (expected.wait if isinstance(expected, Denied) else None)
