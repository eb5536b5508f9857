"""Pools in the memory store: no accounts of keys at rest, and no pool changes of an earlier verb."""

from __future__ import annotations

import pytest

from tidemill.core.accounts import Account
from tidemill.core.claims import Settlement
from tidemill.core.feedback import Reason
from tidemill.core.ledger import HeldReservation
from tidemill.core.limits import Limit
from tidemill.core.outcomes import Success
from tidemill.core.pool_statistics import UNUSED_KEY_SECONDS
from tidemill.core.pools import PoolSettings
from tidemill.core.reservations import Reservation
from tidemill.engine.ledger import PoolLedger, PoolRecord
from tidemill.stores.memory import MemoryStore
from tidemill.testing.clocks import ManualClock
from tidemill.testing.conformance.fixtures import StoreDriver, need, refusal_of_call


def test_an_account_without_reservations_is_not_counted() -> None:
    books = PoolLedger(ManualClock(), lambda _: None)
    for number in range(3):
        claim = (f"job-{number}", 1, number)
        books.add_reservations(claim, [HeldReservation("s", f"host-{number}", Reservation({}, {}, ""))])
        assert books.reservations(("s", f"host-{number}")) == 1
        books.end_claim(claim)
    assert not books._open.items(), "a zero of every key would be kept for ever"


def test_only_accounts_of_keys_at_rest_are_deleted() -> None:
    clock = ManualClock()
    books = PoolLedger(clock, lambda _: None)
    limits = (Limit.requests(10, per="minute"),)
    books.pools = {
        "s": PoolRecord(PoolSettings(limits=limits, keyed=True)),
        "n": PoolRecord(PoolSettings(limits=limits)),
    }
    for place in (("s", "k"), ("n", None)):
        books.save(place, Account())
    clock.advance(UNUSED_KEY_SECONDS)
    books.forget_idle_keys(10)
    assert set(books.accounts) == {("s", "k"), ("n", None)}, "it may be used again soon"
    clock.advance(1)
    books.forget_idle_keys(10)
    assert set(books.accounts) == {("n", None)}


@pytest.mark.parametrize("verb", ["settle", "claim", "observe"])
async def test_p17_pool_changes_of_another_verb_are_not_returned_later(verb: str) -> None:
    """A reservation makes its job the probe, and returns no pool changes."""
    clock = ManualClock()
    driver = StoreDriver(await MemoryStore(clock=clock).open(), clock)
    limits = (Limit.requests(10, per="minute"),)
    await driver.store.declare_pools({"m": PoolSettings(limits=limits), "n": PoolSettings(limits=limits)})
    await driver.add("a", "b", "c")
    probe, other = await driver.take_one(), await driver.take_one()
    await driver.store.observe(refusal_of_call("m", Reason.STATED, resets_at=clock.wall() + 100).observations)
    clock.advance(101)
    assert await driver.store.reserve(probe.id, probe.fence, probe.claim, need("m")) is None
    if verb == "settle":
        ended = [Settlement(other.id, other.fence, other.claim, Success())]
        assert (await driver.store.settle(ended)).pool_changes == ()
    elif verb == "claim":
        assert (await driver.claim()).pool_changes == ()
    else:
        observations = refusal_of_call("n", Reason.STATED, resets_at=clock.wall() + 100).observations
        assert [news.pool for news in await driver.store.observe(observations)] == ["n"]
