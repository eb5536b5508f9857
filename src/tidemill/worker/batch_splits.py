"""How a call that failed is divided, to find whom it failed of.

Halving finds one bad item of a hundred with fifteen calls. From about a fifth of bad ones on it costs more
than trying each alone, so what became of the parts of one original call is remembered, as far as this
worker saw it: nothing but the number of calls depends on it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence

from tidemill.core.claims import Claimed
from tidemill.core.outcomes import Crashed, Outcome, Split
from tidemill.tasks.batches import OnError
from tidemill.worker.batch_verdicts import Verdict

TOO_MANY = 0.15
"""The share of bad items from which on the parts that fail go singly. By simulation, calls for 100 items of
which 5, 10, 20, 50 are bad: 48, 77, 111, 127; halving to the end takes 48, 75, 113, 173."""
ENOUGH = 4
"""So many calls of a size tell something: one bad item alone makes two of each."""
REMEMBERED = 1000


class Seen:
    """What became of the parts of one call. Sizes that halving brings about are counted as one."""

    def __init__(self) -> None:
        self._calls: Counter[int] = Counter()
        self._good: Counter[int] = Counter()
        self._bad: Counter[int] = Counter()

    def note(self, size: int, *, good: bool) -> None:
        level = _level(size)
        self._calls[level] += 1
        (self._good if good else self._bad)[level] += size

    def has_too_many(self, size: int) -> bool:
        """Whether so many items are bad, judged by how few parts of that size have none: of n items none is
        bad with the n-th power of one's chance to be good. What went well in a larger part is good in a
        small one too."""
        level = _level(size)
        if self._calls[level] < ENOUGH:
            return False
        good = sum(items for at, items in self._good.items() if at >= level)
        share = self._bad[level] / (self._bad[level] + good)
        share = min(share, 1 - 0.5 / self._calls[level])  # that all failed does not mean that all are bad
        return bool(1 - (1 - share) ** (1 / size) > TOO_MANY)


class Splits:
    """Parts are named after the first call of all and the one they were divided from, so that none is ever
    called like another: a claim of this worker's is nobody else's, and the number tells its calls apart."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, Seen] = OrderedDict()
        self._number = 0

    def went_well(self, lead: Claimed, size: int) -> None:
        if origin := _origin(lead):
            self._of(origin).note(size, good=True)

    def outcomes(
        self, lead: Claimed, jobs: Sequence[Claimed], verdict: Verdict, rule: OnError
    ) -> list[Outcome]:
        """Of a call that failed as a whole."""
        size = len(jobs)
        if verdict.error is None or size == 1:
            return verdict.outcomes
        if rule == "fail" and not isinstance(verdict.outcomes[0], Crashed):  # no crash is a neighbour's (I8)
            return verdict.outcomes
        self._number += 1
        name = f"{lead.claim:x}-{self._number}"
        origin = _origin(lead) or name
        seen = self._of(origin)
        seen.note(size, good=False)
        most = (size + 1) // 2 if rule == "bisect" and not seen.has_too_many(size) else 1
        return [Split(f"{origin}/{name}.{place // most}") for place in range(size)]

    def _of(self, origin: str) -> Seen:
        seen = self._seen.setdefault(origin, Seen())
        self._seen.move_to_end(origin)
        while len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        return seen


def _origin(lead: Claimed) -> str:
    """'' while it is whole."""
    return lead.part.partition("/")[0]


def _level(size: int) -> int:
    return (size - 1).bit_length()
