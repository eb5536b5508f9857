"""Counters, gauges and histograms of an application: `app.metrics`.

Create an instrument once, next to the tasks, and use it from any thread."""

from __future__ import annotations

import math
import re
import threading
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

from tidemill.core.validation import INFINITY, is_number
from tidemill.errors import ConfigurationError
from tidemill.metrics.families import LabelValues, MetricFamily, MetricKind, MetricSamples, SampleValues

DURATION_BUCKETS_SECONDS = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    900.0,
)
MAX_SERIES_PER_METRIC = 1000
"""The limit per instrument. Series with further label values are counted together under OTHER_LABELS, which
bounds the memory of this process and of Prometheus."""
OTHER_LABELS = "(others)"
RESERVED_PREFIX = "tidemill_"

_METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")

GaugeValue = float | Mapping[LabelValues, float]
GaugeFunction = Callable[[], Awaitable[GaugeValue] | GaugeValue]
"""A function that returns a gauge's current value: one number, or a number for each tuple of label values."""


class Instrument:
    def __init__(self, family: MetricFamily) -> None:
        self.family = family
        self.series: dict[LabelValues, list[float]] = {}
        self.lock = threading.Lock()

    def counted(self) -> MetricSamples:
        with self.lock:
            return MetricSamples(
                self.family, tuple((of, tuple(amounts)) for of, amounts in self.series.items())
            )

    def amounts(self, labels: LabelValues, fresh: SampleValues) -> list[float]:
        """Returns the list of values of one series, for the caller to change; the caller holds the lock.
        `fresh` is the start value of a new series. After 1000 series, new label values share one series."""
        found = self.series.get(labels)
        if found is None:
            if len(self.series) >= MAX_SERIES_PER_METRIC:
                labels = (OTHER_LABELS,) * len(labels)
            found = self.series.setdefault(labels, list(fresh))
        return found

    def label_values(self, labels: Mapping[str, object]) -> LabelValues:
        names = self.family.labels
        if len(labels) != len(names) or any(name not in labels for name in names):
            raise ConfigurationError(
                f"metric {self.family.name!r}: must be given its labels ({', '.join(names) or 'none'}), "
                f"was given {', '.join(labels) or 'none'}"
            )
        return tuple(_replace_surrogates(str(labels[name])) for name in names)

    def number(self, value: float) -> float:
        """Returns the value as a float. Raises ConfigurationError for infinity and NaN, because they would
        spoil every sum and JSON cannot represent them."""
        if not math.isfinite(number := float(value)):
            raise ConfigurationError(
                f"metric {self.family.name!r}: {value!r} is no number to keep; leave it out"
            )
        return number


class Counter(Instrument):
    """A metric that only grows. Example: `plays.add(model="small")`."""

    def add(self, amount: float = 1, /, **labels: object) -> None:
        if not is_number(amount, 0):
            raise ConfigurationError(
                f"metric {self.family.name!r}: a counter only grows, and {amount!r} is no amount to add; "
                "take a gauge for what also falls"
            )
        of = self.label_values(labels)
        with self.lock:
            self.amounts(of, self.fresh)[0] += amount

    @property
    def fresh(self) -> SampleValues:
        return (0,)


class Gauge(Instrument):
    """A metric that rises and falls. Its value is the last value that any process has set, or the result of
    `read` at the time of the export."""

    def __init__(self, family: MetricFamily, wall: Callable[[], float], read: GaugeFunction | None) -> None:
        super().__init__(family)
        self._wall, self.read = wall, read

    def set(self, value: float, /, **labels: object) -> None:
        if self.read is not None:
            raise ConfigurationError(f"metric {self.family.name!r}: is read by a function and cannot be set")
        of, at, number = self.label_values(labels), self._wall(), self.number(value)
        with self.lock:
            self.amounts(of, (0, 0))[:] = (number, at)


class Histogram(Instrument):
    """A metric that counts values in buckets. Example: `took.observe(0.3, model="small")`."""

    def observe(self, value: float, /, **labels: object) -> None:
        of, number = self.label_values(labels), self.number(value)
        with self.lock:
            amounts = self.amounts(of, self.fresh)
            amounts[bisect_left(self.family.bounds, number)] += 1
            amounts[-1] += number

    @property
    def fresh(self) -> SampleValues:
        return (0,) * (len(self.family.bounds) + 2)


InstrumentT = TypeVar("InstrumentT", bound=Instrument)


class MetricRegistry:
    """`app.metrics`: creates counters, gauges and histograms, exported together with Tidemill's metrics."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._made: dict[str, Instrument] = {}

    def __iter__(self) -> Iterator[Instrument]:
        return iter(tuple(self._made.values()))

    def counter(self, name: str, help_text: str, *, labels: Sequence[str] = ()) -> Counter:
        """Creates a counter. Its name must end in `_total`.

        `plays = app.metrics.counter("plays_total", "Songs played.", labels=["model"])`, then
        `plays.add(model="small")` for each song."""
        if not name.endswith("_total"):
            raise ConfigurationError(f"metric {name!r}: the name of a counter ends in _total; add it")
        return self._add(Counter(_new_family(name, "counter", help_text, labels)))

    def gauge(
        self, name: str, help_text: str, *, labels: Sequence[str] = (), read: GaugeFunction | None = None
    ) -> Gauge:
        """Creates a gauge, a value that rises and falls.

        `read` is a function, async or not, that returns a number, or a dict of numbers by tuple of label
        values. It is called for each export. `read=None`: call `set` on the gauge; the value set last is
        exported."""
        return self._add(Gauge(_new_family(name, "gauge", help_text, labels), self._wall, read))

    def histogram(
        self,
        name: str,
        help_text: str,
        *,
        labels: Sequence[str] = (),
        bounds: Sequence[float] = DURATION_BUCKETS_SECONDS,
    ) -> Histogram:
        """Creates a histogram. `bounds` are the upper bounds of its buckets; the default bounds suit
        durations in seconds."""
        return self._add(Histogram(_new_family(name, "histogram", help_text, labels, bounds)))

    def own(self, instrument: InstrumentT) -> InstrumentT:
        """Registers one of Tidemill's own instruments, whose name has the reserved prefix. Returns the
        existing instrument if the name is already registered."""
        return self._made.setdefault(instrument.family.name, instrument)  # type: ignore[return-value]

    def counted(self) -> dict[str, MetricSamples]:
        """Returns the samples of this process, by metric name. Gauges with a `read` function have no samples
        here, because their values are not stored."""
        counted = [instrument.counted() for instrument in self._made.values()]
        return {instrument.family.name: instrument for instrument in counted if instrument.series}

    def _add(self, instrument: InstrumentT) -> InstrumentT:
        name = instrument.family.name
        if name in self._made:
            raise ConfigurationError(f"metric {name!r}: is declared twice; keep one, and import it elsewhere")
        self._made[name] = instrument
        return instrument


def _new_family(
    name: str, kind: MetricKind, help_text: str, labels: Sequence[str], bounds: Sequence[float] = ()
) -> MetricFamily:
    if _METRIC_NAME.fullmatch(name) is None or name.startswith(RESERVED_PREFIX):
        raise ConfigurationError(
            f"metric {name!r}: a name has letters, digits and underscores, begins with no digit, nor with "
            f"{RESERVED_PREFIX}; choose another"
        )
    for label in labels:
        if isinstance(labels, str) or _LABEL_NAME.fullmatch(label) is None or label == "le":
            raise ConfigurationError(
                f"metric {name!r}: labels: must be a list of names such as ['model'], is {labels!r}"
            )
    if not all(is_number(bound, -INFINITY) for bound in bounds) or any(a >= b for a, b in pairwise(bounds)):
        raise ConfigurationError(f"metric {name!r}: bounds: must be numbers that grow, are {bounds!r}")
    return MetricFamily(
        name=name, kind=kind, help_text=help_text, labels=tuple(labels), bounds=tuple(map(float, bounds))
    )


def _replace_surrogates(text: str) -> str:
    """Returns the text with lone surrogates replaced by `?`, because UTF-8 cannot encode them."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
