"""What a program counts with.

An instrument is made once, beside the tasks, and used from any thread. Its values are in the memory of the
process, and reach the store with its tally.
"""

from __future__ import annotations

import math
import re
import threading
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

from tidemill.core.numbers import INFINITY, is_number
from tidemill.errors import ConfigurationError
from tidemill.tallies.families import Amounts, Counted, Family, Kind, Labels

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
SERIES_AT_MOST = 1000
"""Of one instrument. Whatever comes with other labels is counted together, as OTHERS: what outgrows the
memory of a process would outgrow that of whoever reads it."""
OTHERS = "(others)"
RESERVED = "tidemill_"

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")

Value = float | Mapping[Labels, float]
Reads = Callable[[], Awaitable[Value] | Value]
"""What a gauge is when somebody asks: a number, or one for each combination of the values of its labels."""


class Instrument:
    def __init__(self, family: Family) -> None:
        self.family = family
        self.series: dict[Labels, list[float]] = {}
        self.lock = threading.Lock()

    def counted(self) -> Counted:
        with self.lock:
            return Counted(self.family, tuple((of, tuple(amounts)) for of, amounts in self.series.items()))

    def amounts(self, labels: Labels, fresh: Amounts) -> list[float]:
        """Those to be changed, under the lock. There may be no series for them yet, nor room for one."""
        found = self.series.get(labels)
        if found is None:
            if len(self.series) >= SERIES_AT_MOST:
                labels = (OTHERS,) * len(labels)
            found = self.series.setdefault(labels, list(fresh))
        return found

    def labelled(self, labels: Mapping[str, object]) -> Labels:
        wanted = self.family.labels
        if len(labels) != len(wanted) or any(name not in labels for name in wanted):
            raise ConfigurationError(
                f"metric {self.family.name!r}: must be given its labels ({', '.join(wanted) or 'none'}), "
                f"was given {', '.join(labels) or 'none'}"
            )
        return tuple(_plain(str(labels[name])) for name in wanted)

    def number(self, value: float) -> float:
        """No infinity: it would be in every sum that it is added to, and JSON has none."""
        if not math.isfinite(number := float(value)):
            raise ConfigurationError(
                f"metric {self.family.name!r}: {value!r} is no number to keep; leave it out"
            )
        return number


class Counter(Instrument):
    """Only grows: `plays.add(model="small")`."""

    def add(self, amount: float = 1, /, **labels: object) -> None:
        if not is_number(amount, 0):
            raise ConfigurationError(
                f"metric {self.family.name!r}: a counter only grows, and {amount!r} is no amount to add; "
                "take a gauge for what also falls"
            )
        of = self.labelled(labels)
        with self.lock:
            self.amounts(of, self.fresh)[0] += amount

    @property
    def fresh(self) -> Amounts:
        return (0,)


class Gauge(Instrument):
    """The value that was set last, by whichever process; with `read`, what that answers when it is asked."""

    def __init__(self, family: Family, wall: Callable[[], float], read: Reads | None) -> None:
        super().__init__(family)
        self._wall, self.read = wall, read

    def set(self, value: float, /, **labels: object) -> None:
        if self.read is not None:
            raise ConfigurationError(f"metric {self.family.name!r}: is read by a function and cannot be set")
        of, at, number = self.labelled(labels), self._wall(), self.number(value)
        with self.lock:
            self.amounts(of, (0, 0))[:] = (number, at)


class Histogram(Instrument):
    """How values are distributed: `took.observe(0.3, model="small")`."""

    def observe(self, value: float, /, **labels: object) -> None:
        of, number = self.labelled(labels), self.number(value)
        with self.lock:
            amounts = self.amounts(of, self.fresh)
            amounts[bisect_left(self.family.bounds, number)] += 1
            amounts[-1] += number

    @property
    def fresh(self) -> Amounts:
        return (0,) * (len(self.family.bounds) + 2)


I = TypeVar("I", bound=Instrument)  # noqa: E741 - an instrument


class Instruments:
    """`app.metrics`: a counter, a gauge or a histogram of an application's own, shown with Tidemill's."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._made: dict[str, Instrument] = {}

    def __iter__(self) -> Iterator[Instrument]:
        return iter(tuple(self._made.values()))

    def counter(self, name: str, says: str, *, labels: Sequence[str] = ()) -> Counter:
        """`plays = app.metrics.counter("plays_total", "Songs played.", labels=["model"])`, then
        `plays.add(model="small")` wherever one is played. Its name ends in `_total`."""
        if not name.endswith("_total"):
            raise ConfigurationError(f"metric {name!r}: the name of a counter ends in _total; add it")
        return self._add(Counter(_family(name, "counter", says, labels)))

    def gauge(self, name: str, says: str, *, labels: Sequence[str] = (), read: Reads | None = None) -> Gauge:
        """What rises and falls. `read` is a function, async or plain, that is called whenever the metrics are
        asked for, in the process that shows them, and answers a number, or a dict with one for each tuple of
        the labels' values. Without it the gauge is `set`, and the last one to do so is right."""
        return self._add(Gauge(_family(name, "gauge", says, labels), self._wall, read))

    def histogram(
        self, name: str, says: str, *, labels: Sequence[str] = (), bounds: Sequence[float] = SECONDS
    ) -> Histogram:
        """How values are distributed over buckets with these upper `bounds`; by default they suit seconds."""
        return self._add(Histogram(_family(name, "histogram", says, labels, bounds)))

    def own(self, instrument: I) -> I:
        """Tidemill's, under a reserved name; made again it is the one there is."""
        return self._made.setdefault(instrument.family.name, instrument)  # type: ignore[return-value]

    def counted(self) -> dict[str, Counted]:
        """What there is to tell; that of a gauge which is read is nobody's to keep."""
        counted = [each.counted() for each in self._made.values()]
        return {each.family.name: each for each in counted if each.series}

    def _add(self, instrument: I) -> I:
        name = instrument.family.name
        if name in self._made:
            raise ConfigurationError(f"metric {name!r}: is declared twice; keep one, and import it elsewhere")
        self._made[name] = instrument
        return instrument


def _family(name: str, kind: Kind, says: str, labels: Sequence[str], bounds: Sequence[float] = ()) -> Family:
    if _NAME.fullmatch(name) is None or name.startswith(RESERVED):
        raise ConfigurationError(
            f"metric {name!r}: a name has letters, digits and underscores, begins with no digit, nor with "
            f"{RESERVED}; choose another"
        )
    for label in labels:
        if isinstance(labels, str) or _LABEL.fullmatch(label) is None or label == "le":
            raise ConfigurationError(
                f"metric {name!r}: labels: must be a list of names such as ['model'], is {labels!r}"
            )
    if not all(is_number(bound, -INFINITY) for bound in bounds) or any(a >= b for a, b in pairwise(bounds)):
        raise ConfigurationError(f"metric {name!r}: bounds: must be numbers that grow, are {bounds!r}")
    return Family(name=name, kind=kind, says=says, labels=tuple(labels), bounds=tuple(map(float, bounds)))


def _plain(text: str) -> str:
    """Half of a surrogate pair cannot be written down."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
