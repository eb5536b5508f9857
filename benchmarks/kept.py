"""A run as it is kept: written after every measurement, so that whatever ends it loses one at most."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.choice import Choice
from benchmarks.plan import Plan
from benchmarks.targets import Results

FOLDER = Path(__file__).parent / "results"


@dataclass
class Run:
    """`how` says of each queue its settings and when it forgets a job; `asked` is what was chosen, so that
    a run can be taken up again."""

    store: str
    about: dict[str, str]
    results: Results = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    how: dict[str, tuple[str, str]] = field(default_factory=dict)
    asked: Choice = field(default_factory=Choice)

    @property
    def complete(self) -> bool:
        """Whether it is the whole plan, to its end."""
        return self.asked.complete and not self.left()

    def left(self) -> list[tuple[Plan, str]]:
        """What is still to be measured."""
        return list(self.asked.left(self.store, self.results))


def new_file(store: str) -> Path:
    return FOLDER / f"{time.strftime('%Y%m%d-%H%M%S')}-{store}.json"


def write(path: Path, run: Run) -> None:
    """Whole or not at all: whoever is killed while writing leaves the file as it was."""
    path.parent.mkdir(exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(asdict(run), indent=1) + "\n")
    beside.replace(path)


def read(path: Path) -> Run:
    said = json.loads(path.read_text())
    how = {queue: (settings, forgets) for queue, (settings, forgets) in said.pop("how", {}).items()}
    return Run(**{**said, "how": how, "asked": Choice(**said.get("asked", {}))})
