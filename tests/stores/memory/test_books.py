"""What the memory store keeps of pools: nothing of keys at rest, and no news of an earlier step."""

from __future__ import annotations

import pytest

from tidemill.core.accounts import Account
from tidemill.core.claims import Settlement
from tidemill.core.ledger import Reserved
from tidemill.core.limits import Limit
from tidemill.core.outcomes import Done
from tidemill.core.pools import PoolSettings
from tidemill.core.refusals import Reason
from tidemill.core.reserving import Reservation
from tidemill.core.usage import UNUSED_FOR
from tidemill.engine.ledger import Books, Pool
from tidemill.stores.memory import MemoryStore
from tidemill.testing.conformance.driver import Driver, need, refusing
from tidemill.testing.manual import ManualClock


def test_an_account_without_reservations_is_not_counted() -> None:
    books = Books(ManualClock(), lambda _: None)
    for number in range(3):
        claim = (f"job-{number}", 1, number)
        books.hold(claim, [Reserved("s", f"host-{number}", Reservation({}, {}, ""))])
        assert books.reservations(("s", f"host-{number}")) == 1
        books.end(claim)
    assert not books._open.items(), "a zero of every key would be kept for ever"


def test_an_account_of_a_key_at_rest_is_forgotten_and_that_of_a_pool_is_not() -> None:
    clock = ManualClock()
    books = Books(clock, lambda _: None)
    limits = (Limit.requests(10, per="minute"),)
    books.pools = {"s": Pool(PoolSettings(limits=limits, keyed=True)), "n": Pool(PoolSettings(limits=limits))}
    for place in (("s", "k"), ("n", None)):
        books.save(place, Account())
    clock.advance(UNUSED_FOR)
    books.forget_resting(10)
    assert set(books.accounts) == {("s", "k"), ("n", None)}, "it may be used again soon"
    clock.advance(1)
    books.forget_resting(10)
    assert set(books.accounts) == {("n", None)}


@pytest.mark.parametrize("verb", ["settle", "claim", "observe"])
async def test_p17_news_of_a_step_that_hands_out_none_is_not_told_later(verb: str) -> None:
    """A reservation makes its job the probe, and answers with a wait only."""
    clock = ManualClock()
    drive = Driver(await MemoryStore(clock=clock).open(), clock)
    limits = (Limit.requests(10, per="minute"),)
    await drive.store.declare_pools({"m": PoolSettings(limits=limits), "n": PoolSettings(limits=limits)})
    await drive.add("a", "b", "c")
    probe, other = await drive.take_one(), await drive.take_one()
    await drive.store.observe(refusing("m", Reason.STATED, resets_at=clock.wall() + 100).observations)
    clock.advance(101)
    assert await drive.store.reserve(probe.id, probe.fence, probe.claim, need("m")) is None
    if verb == "settle":
        ended = [Settlement(other.id, other.fence, other.claim, Done())]
        assert (await drive.store.settle(ended)).news == ()
    elif verb == "claim":
        assert (await drive.claim()).news == ()
    else:
        told = refusing("n", Reason.STATED, resets_at=clock.wall() + 100).observations
        assert [news.pool for news in await drive.store.observe(told)] == ["n"]
