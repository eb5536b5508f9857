"""The application's own metrics, and what else processes counted."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable, Iterator, Mapping

from tidemill.contract.store import Store
from tidemill.errors import ConfigurationError
from tidemill.metrics import catalogue
from tidemill.metrics.catalogue import valued
from tidemill.tallies.families import Amounts, Counted, Labels, added
from tidemill.tallies.folding import counted
from tidemill.tallies.instruments import (
    RESERVED,
    SERIES_AT_MOST,
    Counter,
    Gauge,
    Histogram,
    Instrument,
    Value,
)
from tidemill.tallies.tally import Tally

READ_WITHIN = 5.0
"""Seconds in which a function of the application's own answers: others wait for its answer."""


async def of_processes(store: Store, tally: Tally | None) -> list[Counted]:
    """What all of them told, and what is read now; ours first. Not what this one has not told yet: whoever
    asks another process next would see it fall."""
    told = (await counted(store)).values()
    if tally is None:
        return list(told)
    read, unreadable = await _read(each for each in tally.instruments if isinstance(each, Gauge))
    found = [
        *added(told, _from_the_start(tally.instruments), read).values(),
        valued(catalogue.UNREADABLE, unreadable),
    ]
    return sorted(found, key=lambda each: not each.family.name.startswith(RESERVED))


def _from_the_start(instruments: Iterable[Instrument]) -> Iterator[Counted]:
    """Nought of what has not happened yet, so that a rate of it can be written. Those with labels are there
    when their labels are known."""
    for each in instruments:
        if isinstance(each, Counter | Histogram) and not each.family.labels:
            yield Counted(each.family, (((), each.fresh),))


async def _read(gauges: Iterable[Gauge]) -> tuple[list[Counted], dict[str, float]]:
    """The functions are the application's: one that raises must not hide the other numbers."""
    found: list[Counted] = []
    unreadable: dict[str, float] = {}
    for gauge in gauges:
        if gauge.read is None:
            continue
        try:
            answer = gauge.read()
            async with asyncio.timeout(READ_WITHIN):
                value = await answer if inspect.isawaitable(answer) else answer
            found.append(Counted(gauge.family, _series(gauge, value)))
        except Exception:  # noqa: BLE001 - whatever it is, it is shown as a metric of its own
            unreadable[gauge.family.name] = 1
    return found, unreadable


def _series(gauge: Gauge, value: Value) -> tuple[tuple[Labels, Amounts], ...]:
    values: Mapping[Labels, float] = value if isinstance(value, Mapping) else {(): value}
    wanted = len(gauge.family.labels)
    if any(len(labels) != wanted for labels in values):
        raise ConfigurationError(f"metric {gauge.family.name!r}: must answer {wanted} values of labels each")
    some = list(values.items())[:SERIES_AT_MOST]
    return tuple((tuple(map(str, labels)), (float(of),)) for labels, of in some)
