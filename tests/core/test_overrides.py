"""An override: some settings, over the declared ones, for a while."""

from __future__ import annotations

import msgspec
import pytest

from tidemill.core.queues import Override, QueueChanges, QueueSettings, Retention, in_force

DECLARED = QueueSettings(weight=3, concurrency=5, max_length=100)


def signed(changes: QueueChanges, until: float | None = None, by: str = "ann") -> Override:
    return Override(changes=changes, by=by, since=0.0, until=until)


def test_q2_only_what_is_named_changes() -> None:
    changes = QueueChanges(concurrency=None, keep_done=Retention(count=1))
    assert changes.given() == {"concurrency": None, "keep_done": Retention(count=1)}
    assert changes.over(DECLARED) == QueueSettings(
        weight=3, concurrency=None, max_length=100, keep_done=Retention(count=1)
    )


def test_q2_it_holds_until_its_time_and_not_at_it() -> None:
    changes = QueueChanges(weight=9)
    assert in_force(DECLARED, None, 0.0) == DECLARED
    assert in_force(DECLARED, signed(changes), 10.0**12).weight == 9
    assert in_force(DECLARED, signed(changes, until=5.0), 4.999).weight == 9
    assert in_force(DECLARED, signed(changes, until=5.0), 5.0) == DECLARED


@pytest.mark.parametrize("changes", [QueueChanges(), QueueChanges(max_length=None), QueueChanges(weight=2)])
def test_a_limit_named_as_null_and_one_not_named_survive_json(changes: QueueChanges) -> None:
    kept = msgspec.json.decode(msgspec.json.encode(signed(changes)), type=Override)
    assert kept == signed(changes)
    assert kept.changes.given() == changes.given()


@pytest.mark.parametrize(
    ("override", "field"),
    [
        (signed(QueueChanges(weight=0)), "weight"),
        (signed(QueueChanges(max_length=0)), "max_length"),
        (signed(QueueChanges(), by=""), "by"),
        (signed(QueueChanges(), by="\ud800"), "by"),
        (signed(QueueChanges(), until=float("nan")), "until"),
    ],
)
def test_what_cannot_hold_is_told_by_field(override: Override, field: str) -> None:
    assert (override.problem() or "").startswith(f"{field}:")
    assert signed(QueueChanges(weight=2)).problem() is None
