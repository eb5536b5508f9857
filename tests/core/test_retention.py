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
