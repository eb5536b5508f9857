"""What happened, line by line, for the person who has to understand a failing seed."""

from __future__ import annotations

from collections.abc import Callable


class Violation(Exception):
    """An invariant does not hold. `number` is its number in the list."""

    def __init__(self, number: str, sentence: str) -> None:
        super().__init__(f"{number}: {sentence}")
        self.number = number


class Trace:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._lines: list[tuple[float, str, str]] = []

    def add(self, who: str, what: str) -> None:
        self._lines.append((self._now(), who, what))

    def render(self, about: str | None = None) -> str:
        """Every line, or those that name a job or a process."""
        shown = (line for line in self._lines if about is None or about in line[1] or about in line[2])
        return "\n".join(f"{at:10.3f}  {who:<12} {what}" for at, who, what in shown)
