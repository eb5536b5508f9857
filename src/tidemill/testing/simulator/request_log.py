"""The log of a simulated provider: all requests, refusals and bills.

Tests check this log, not the queue, for exceeded quotas and for calls that were paid twice."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import msgspec

from tidemill.testing.simulator.options import RefusalCause
from tidemill.testing.simulator.quotas import UnitCounts, to_ticks


class RequestEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One request in the log.

    - `at`: when it was counted, in seconds since the start.
    - `units`: the units that it took.
    - `mark`: identifies the caller's job (see `SimulatorCall`).
    - `external`: True for calls of other programs.
    """

    at: float
    mark: str | None
    scope: str
    units: UnitCounts
    admitted: bool
    external: bool


class RefusalEntry(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    mark: str | None
    scope: str
    reason: RefusalCause
    quotas: tuple[str, ...]
    external: bool


class BillEntry(msgspec.Struct, kw_only=True):
    """One billed call.

    - `answered`: True if the caller has received the reply.
    - `texts`: the number of texts in the call: messages of a chat, or texts to embed.
    """

    at: float
    arrived: float
    mark: str | None
    scope: str
    kind: Literal["chat", "embed", "speech"] = "chat"
    model: str = ""
    texts: int = 1
    input_tokens: int
    output_tokens: int
    answered: bool = False


class RequestLog(msgspec.Struct):
    arrivals: list[RequestEntry] = msgspec.field(default_factory=list)
    refusals: list[RefusalEntry] = msgspec.field(default_factory=list)
    bills: list[BillEntry] = msgspec.field(default_factory=list)

    @property
    def refused(self) -> list[RefusalEntry]:
        """The refused calls of the test, without external ones."""
        return [refusal for refusal in self.refusals if not refusal.external]

    @property
    def unknown(self) -> list[BillEntry]:
        """Billed calls whose reply never reached the caller."""
        return [bill for bill in self.bills if not bill.answered]

    def bills_for_job(self, mark: str) -> list[BillEntry]:
        return [bill for bill in self.bills if bill.mark == mark]

    def duplicate_payments(self) -> dict[str, int]:
        """Returns the jobs that were billed more than once: the `mark` of each job and the number of its
        excess bills."""
        counts = Counter(bill.mark for bill in self.bills if bill.mark is not None)
        return {mark: count - 1 for mark, count in counts.items() if count > 1}

    def max_units_in_window(self, unit: str, seconds: float) -> int:
        """Returns the largest sum of admitted units in any window from t to just before t + `seconds`."""
        admitted = sorted(
            (to_ticks(arrival.at), arrival.units.get(unit, 0))
            for arrival in self.arrivals
            if arrival.admitted
        )
        most = inside = first = 0
        for at, units in admitted:
            inside += units
            while admitted[first][0] <= at - to_ticks(seconds):
                inside -= admitted[first][1]
                first += 1
            most = max(most, inside)
        return most
