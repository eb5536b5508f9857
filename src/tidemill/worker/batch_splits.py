"""How a call that failed is divided, to find whom it failed of.

Bisecting finds one bad item of a hundred with fifteen calls. Where many are bad it costs more than trying
each alone, so what became of the parts of one original call is remembered, as far as this worker saw it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from tidemill.core.claims import Claimed
from tidemill.core.outcomes import Crashed, Outcome, Split
from tidemill.tasks.batches import OnError
from tidemill.worker.batch_verdicts import Verdict

TOO_MANY = 0.2
"""Of the parts that were not divided further, the share that failed from which on the rest goes singly."""
ENOUGH = 5
"""So many of them tell something: a single bad item alone is never too many."""
REMEMBERED = 1000


class _Seen:
    __slots__ = ("failed", "parts")

    def __init__(self) -> None:
        self.parts = self.failed = 0

    @property
    def too_many(self) -> bool:
        return self.parts >= ENOUGH and self.failed > TOO_MANY * self.parts


class Splits:
    """Parts are named after the first call of all and the one they were divided from, so that none is ever
    called like another: a claim of this worker's is nobody else's, and the number tells its calls apart."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, _Seen] = OrderedDict()
        self._number = 0

    def went_well(self, lead: Claimed) -> None:
        if origin := _origin(lead):
            self._of(origin).parts += 1

    def outcomes(
        self, lead: Claimed, jobs: Sequence[Claimed], verdict: Verdict, rule: OnError
    ) -> list[Outcome]:
        """Of a call that failed as a whole."""
        if verdict.error is None:
            return verdict.outcomes
        if len(jobs) == 1:
            if origin := _origin(lead):
                seen = self._of(origin)
                seen.parts += 1
                seen.failed += 1
            return verdict.outcomes
        if rule == "fail" and not isinstance(verdict.outcomes[0], Crashed):  # no crash is a neighbour's (I8)
            return verdict.outcomes
        self._number += 1
        name = f"{lead.claim:x}-{self._number}"
        origin = _origin(lead) or name
        singly = rule != "bisect" or self._of(origin).too_many
        size = 1 if singly else (len(jobs) + 1) // 2
        return [Split(f"{origin}/{name}.{place // size}") for place in range(len(jobs))]

    def _of(self, origin: str) -> _Seen:
        seen = self._seen.setdefault(origin, _Seen())
        self._seen.move_to_end(origin)
        while len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        return seen


def _origin(lead: Claimed) -> str:
    """'' while it is whole."""
    return lead.part.partition("/")[0]
