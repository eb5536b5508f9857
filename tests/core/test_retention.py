"""What may be kept: bounds below nothing would empty the shelf."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill.core.queues import QueueSettings, Retention


@pytest.mark.parametrize("kept", [Retention(), Retention(age=0.0), Retention(count=0), Retention(1.5, 3)])
def test_what_can_be_kept(kept: Retention) -> None:
    assert QueueSettings(keep_done=kept, keep_failed=kept, keep_cancelled=kept).problem() is None


@pytest.mark.parametrize("field", ["keep_done", "keep_failed", "keep_cancelled"])
@pytest.mark.parametrize(
    ("kept", "word"),
    [
        (Retention(age=-5.0), "age"),
        (Retention(age=float("nan")), "age"),
        (Retention(count=-3), "count"),
        (5, "Retention"),
    ],
)
def test_what_cannot_be_is_told_by_field(field: str, kept: Any, word: str) -> None:
    problem = QueueSettings(**{field: kept}).problem() or ""
    assert problem.startswith(f"{field}:")
    assert word in problem


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        (Retention(), "without a bound"),
        (Retention(age=7 * 86_400.0), "for 7 days"),
        (Retention(age=86_400.0), "for 24 hours"),
        (Retention(age=5400.0), "for 90 minutes"),
        (Retention(age=60.0), "for 60 seconds"),
        (Retention(age=1.5), "for 1.5 seconds"),
        (Retention(count=1_000_000), "at most 1 000 000"),
        (Retention(age=0.0, count=0), "for 0 seconds, at most 0"),
    ],
)
def test_bounds_in_words(kept: Retention, words: str) -> None:
    assert kept.described() == words
