"""The parameters of one measurement of one queue."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.adapters import Adapter, FlowAdapter, load_adapter, load_flow_adapter
from benchmarks.empty_stores import EmptyStore


@dataclass(frozen=True)
class Case:
    """One measurement. `size` is a number of jobs or of seconds; `folder` is for temporary files."""

    measurement: str
    queue: str
    place: EmptyStore
    size: float
    folder: Path

    def adapter(self) -> Adapter:
        return load_adapter(self.place.store, self.queue)

    def flows(self) -> FlowAdapter:
        return load_flow_adapter(self.place.store, self.queue)
