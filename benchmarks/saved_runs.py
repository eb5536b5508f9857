"""A run on disk: written after every measurement, so that a crash loses at most one."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.plan import MeasurementPlan
from benchmarks.selection import Selection
from benchmarks.targets import Results

FOLDER = Path(__file__).parent / "results"


@dataclass
class SavedRun:
    """The results of one run. `how` has each queue's settings and when it forgets a job.

    `asked` is the selection of the command line, so that the run can be resumed."""

    store: str
    about: dict[str, str]
    results: Results = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    how: dict[str, tuple[str, str]] = field(default_factory=dict)
    asked: Selection = field(default_factory=Selection)

    @property
    def complete(self) -> bool:
        """Whether the run covers the whole plan and has finished."""
        return self.asked.complete and not self.left()

    def left(self) -> list[tuple[MeasurementPlan, str]]:
        """Returns the measurements that are still missing."""
        return list(self.asked.left(self.store, self.results))


def new_file(store: str) -> Path:
    return FOLDER / f"{time.strftime('%Y%m%d-%H%M%S')}-{store}.json"


def write(path: Path, run: SavedRun) -> None:
    """Writes the file atomically: a kill during the write leaves the old file."""
    path.parent.mkdir(exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(asdict(run), indent=1) + "\n")
    beside.replace(path)


def read(path: Path) -> SavedRun:
    said = json.loads(path.read_text())
    how = {queue: (settings, forgets) for queue, (settings, forgets) in said.pop("how", {}).items()}
    return SavedRun(**{**said, "how": how, "asked": Selection(**said.get("asked", {}))})
