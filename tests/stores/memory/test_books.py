"""What the memory store keeps of pools does not grow with the keys that were ever used."""

from __future__ import annotations

from tidemill.core.ledger import Reserved
from tidemill.core.reserving import Reservation
from tidemill.engine.ledger import Books
from tidemill.testing.manual import ManualClock


def test_an_account_without_reservations_is_not_counted() -> None:
    books = Books(ManualClock(), lambda _: None)
    for number in range(3):
        claim = (f"job-{number}", 1, number)
        books.hold(claim, [Reserved("s", f"host-{number}", Reservation({}, {}, ""))])
        assert books.reservations(("s", f"host-{number}")) == 1
        books.end(claim)
    assert not books._open.items(), "a zero of every key would be kept for ever"
