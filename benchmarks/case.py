"""One measurement of one queue: what a process is told that measures it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.adapters import Adapter, FlowAdapter, load, load_flows
from benchmarks.places import Place


@dataclass(frozen=True)
class Case:
    """`size` is a number of jobs or seconds, as the measurement says; `folder` is for its own files."""

    measurement: str
    queue: str
    place: Place
    size: float
    folder: Path

    def adapter(self) -> Adapter:
        return load(self.place.store, self.queue)

    def flows(self) -> FlowAdapter:
        return load_flows(self.place.store, self.queue)
