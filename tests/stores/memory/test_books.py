"""What the memory store keeps of pools does not grow with the keys that were ever used."""

from __future__ import annotations

from tidemill.core.accounts import Account
from tidemill.core.ledger import Reserved
from tidemill.core.limits import Limit
from tidemill.core.pools import PoolSettings
from tidemill.core.reserving import Reservation
from tidemill.core.usage import UNUSED_FOR
from tidemill.engine.ledger import Books, Pool
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
