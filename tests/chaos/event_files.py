"""A log outside the store: producers and handlers write events to append-only files.

Every process has one file and writes whole lines, so that a kill leaves at most one broken line at the
end."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


class EventFile:
    """An event file. The first line opens it, so that importing this module leaves no file behind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: int | None = None

    def write(self, *words: object) -> None:
        if self._file is None:
            name = self._folder / f"{os.getpid()}.log"
            self._file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


@dataclass
class EventSummary:
    """The events of a run.

    `settled` has (fence, answer) of every outcome that a worker settled. `unknown` counts paid calls
    that were repeated because the outcome of the first was unknown. `apart` counts runs in child
    processes."""

    accepted: set[str] = field(default_factory=set)
    started: Counter[str] = field(default_factory=Counter)
    committed: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    apart: int = 0
    settled: dict[str, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))

    @property
    def refused(self) -> int:
        return sum(answer in ("stale", "gone") for _, answer in self._answers())

    def _answers(self) -> Iterator[tuple[int, str]]:
        for answers in self.settled.values():
            yield from answers

    def stale_writes_accepted(self) -> list[str]:
        """Returns the jobs with two accepted successes, or with an accepted outcome of an outdated claim."""
        bad = []
        for job, answers in self.settled.items():
            taken = [fence for fence, answer in answers if answer == "ok"]
            newest = max(fence for fence, _ in answers)
            if len(taken) > 1 or (taken and taken[0] < newest):
                bad.append(job)
        return bad


def read_events(folder: Path) -> EventSummary:
    witness = EventSummary()
    for file in folder.glob("*.log"):
        for line in file.read_text().splitlines():
            match line.split():
                case ["accepted", job]:
                    witness.accepted.add(job)
                case ["started", job]:
                    witness.started[job] += 1
                case ["committed", job]:
                    witness.committed[job] += 1
                case ["unknown", job]:
                    witness.unknown[job] += 1
                case ["apart", _]:
                    witness.apart += 1
                case ["settled", job, fence, answer]:
                    witness.settled[job].append((int(fence), answer))
    return witness
