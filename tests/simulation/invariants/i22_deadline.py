"""I22 Enqueue returns or raises within its deadline (5 s). The length limit is in i13_limits."""

from __future__ import annotations

from tests.simulation.ledger import Ledger
from tests.simulation.trace import Violation

DEADLINE = 5.0


def check_deadline(ledger: Ledger) -> None:
    for id_, seconds in ledger.enqueues:
        if seconds > DEADLINE + 0.001:
            raise Violation("I22", f"the enqueue of {id_} took {seconds:.3f} s")
