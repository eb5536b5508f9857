"""The provider's own books: what arrived, what was refused, what was billed and to whom.

A test asks these, never the queue, whether a quota was kept and whether anything was paid for twice.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal

import msgspec

from tidemill.testing.providers.options import Reason
from tidemill.testing.providers.quota import Units, ticks


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """`at` is when it was counted, in seconds since the start. `units`: what it took; `mark` is what the
    caller sent to be recognised by (see `Asked`)."""

    at: float
    mark: str | None
    scope: str
    units: Units
    admitted: bool
    foreign: bool


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    mark: str | None
    scope: str
    reason: Reason
    quotas: tuple[str, ...]
    foreign: bool


class Bill(msgspec.Struct, kw_only=True):
    """`answered` turns true when the caller has the answer; while it is not, the caller cannot know. `texts`
    is how many came in one call: the vectors of an embedding call, the messages of a chat."""

    at: float
    arrived: float
    mark: str | None
    scope: str
    kind: Literal["chat", "embed"] = "chat"
    model: str = ""
    texts: int = 1
    input_tokens: int
    output_tokens: int
    answered: bool = False


class Ledger(msgspec.Struct):
    arrivals: list[Arrival] = msgspec.field(default_factory=list)
    refusals: list[Refusal] = msgspec.field(default_factory=list)
    bills: list[Bill] = msgspec.field(default_factory=list)

    @property
    def refused(self) -> list[Refusal]:
        """Our own refusals, without those of foreign calls."""
        return [refusal for refusal in self.refusals if not refusal.foreign]

    @property
    def unknown(self) -> list[Bill]:
        """Billed, and the caller never got the answer."""
        return [bill for bill in self.bills if not bill.answered]

    def bills_of(self, mark: str) -> list[Bill]:
        return [bill for bill in self.bills if bill.mark == mark]

    def paid_again(self) -> dict[str, int]:
        """Marks that were billed more than once, and how often too many."""
        counts = Counter(bill.mark for bill in self.bills if bill.mark is not None)
        return {mark: count - 1 for mark, count in counts.items() if count > 1}

    def busiest(self, unit: str, seconds: float) -> int:
        """The most admitted units of any stretch of that length, its end not included."""
        admitted = sorted((ticks(one.at), one.units.get(unit, 0)) for one in self.arrivals if one.admitted)
        most = inside = first = 0
        for at, units in admitted:
            inside += units
            while admitted[first][0] <= at - ticks(seconds):
                inside -= admitted[first][1]
                first += 1
            most = max(most, inside)
        return most
