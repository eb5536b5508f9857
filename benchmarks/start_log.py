"""A log of started jobs in memory that the workers share with the measuring process.

The measuring process reads the log and kills the workers; it needs no answer and no clean exit. Each
worker process has one row: its number of started jobs, the times of its first and last start, and the
lateness of the first `room` starts. Times are from the machine's monotonic clock, which is the same in
every process."""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COUNT, FIRST, LAST, HEAD = 0, 1, 2, 3
DOUBLE = 8


@dataclass(frozen=True)
class StartLog:
    path: Path
    rows: int
    room: int

    @property
    def width(self) -> int:
        return HEAD + self.room

    def create(self) -> memoryview[float]:
        self.path.write_bytes(bytes(DOUBLE * self.width * self.rows))
        return self.open()

    def open(self) -> memoryview[float]:
        with self.path.open("r+b") as file:
            return memoryview(mmap.mmap(file.fileno(), 0)).cast("d")

    def row(self, number: int) -> StartLogRow:
        return StartLogRow(self, number)

    def counts(self, view: memoryview[float]) -> list[int]:
        return [int(view[row * self.width + COUNT]) for row in range(self.rows)]

    def span(self, view: memoryview[float]) -> float:
        """Returns the seconds from the first start of all workers to the last."""
        busy = [row * self.width for row, count in enumerate(self.counts(view)) if count]
        return float(max(view[at + LAST] for at in busy) - min(view[at + FIRST] for at in busy))

    def lateness(self, view: memoryview[float]) -> Iterator[float]:
        for row, count in enumerate(self.counts(view)):
            start = row * self.width + HEAD
            yield from view[start : start + min(count, self.room)].tolist()


class StartLogRow:
    """The row of one worker; called at the start of every handler with the time that its job carries."""

    def __init__(self, tally: StartLog, number: int) -> None:
        self.tally, self.number = tally, number
        self._view = tally.open()
        self._at = number * tally.width
        self._count = 0

    def __call__(self, sent: float) -> None:
        now = time.monotonic()
        view, at, count = self._view, self._at, self._count
        if not count:
            view[at + FIRST] = now
        if count < self.tally.room:
            view[at + HEAD + count] = now - sent
        view[at + LAST] = now
        self._count = count + 1
        view[at] = self._count
