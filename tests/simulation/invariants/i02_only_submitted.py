"""I2 Every job present was submitted; its payload is what was submitted."""

from __future__ import annotations

from tests.simulation.invariants.i10_times import admitted, sent
from tests.simulation.ledger import Ledger
from tests.simulation.trace import Violation
from tests.simulation.watch import Event


class OnlySubmitted:
    """A merge gives the holder the payload of a request that was told the holder stands for it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def see(self, event: Event) -> None:
        told = [(request.payload, answer.id) for request, answer in sent(event)]
        told += [(admission.arrival.payload, admission.arrival.id) for admission in admitted(event)]
        for id_, (before, after) in event.changes.items():
            if after is None or (before is not None and before.payload == after.payload):
                continue
            if id_ not in self._ledger.sent:
                raise Violation("I2", f"{id_} is in the store, and nobody sent it")
            if after.payload not in {payload for payload, stands_for in told if stands_for == id_}:
                raise Violation("I2", f"{event.verb} gave {id_} the payload {after.payload!r}")
