"""Settings, overrides, pauses and retention of queues."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tidemill.core.overrides import Override, apply_override
from tidemill.core.queues import Pause, QueueChanges, QueueSettings, Retention
from tidemill.core.states import State

DECLARED = QueueSettings(weight=3, concurrency=5, max_length=100)


def signed(changes: QueueChanges, until: float | None = None, by: str = "ann") -> Override[QueueChanges]:
    return Override(changes=changes, by=by, since=0.0, until=until)


def test_q2_only_named_settings_change() -> None:
    changes = QueueChanges(concurrency=None, keep_done=Retention(count=1))
    assert changes.given() == {"concurrency": None, "keep_done": Retention(count=1)}
    assert changes.over(DECLARED) == QueueSettings(
        weight=3, concurrency=None, max_length=100, keep_done=Retention(count=1)
    )


def test_q2_an_override_ends_at_its_end_time() -> None:
    changes = QueueChanges(weight=9)
    assert apply_override(DECLARED, None, 0.0) == DECLARED
    assert apply_override(DECLARED, signed(changes), 10.0**12).weight == 9
    assert apply_override(DECLARED, signed(changes, until=5.0), 4.999).weight == 9
    assert apply_override(DECLARED, signed(changes, until=5.0), 5.0) == DECLARED


@pytest.mark.parametrize("changes", [QueueChanges(), QueueChanges(max_length=None), QueueChanges(weight=2)])
def test_a_limit_named_as_null_and_one_not_named_survive_json(changes: QueueChanges) -> None:
    kept = msgspec.json.decode(msgspec.json.encode(signed(changes)), type=Override[QueueChanges])
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
def test_an_invalid_override_names_the_field(override: Override[QueueChanges], field: str) -> None:
    assert (override.problem(DECLARED) or "").startswith(f"{field}:")
    assert signed(QueueChanges(weight=2)).problem(DECLARED) is None


@pytest.mark.parametrize("kept", [Retention(), Retention(age=0.0), Retention(count=0), Retention(1.5, 3)])
def test_a_valid_retention_is_accepted(kept: Retention) -> None:
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
def test_an_invalid_retention_names_the_field(field: str, kept: Any, word: str) -> None:
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
def test_a_retention_is_described_in_words(kept: Retention, words: str) -> None:
    assert kept.described() == words


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        (QueueSettings(weight=0), "weight"),
        (QueueSettings(crash_limit=0), "crash_limit"),
        (QueueSettings(concurrency=0), "concurrency"),
        (QueueSettings(key_concurrency=-1), "key_concurrency"),
        (QueueSettings(max_length=0), "max_length"),
    ],
)
def test_an_invalid_setting_names_the_field(settings: QueueSettings, field: str) -> None:
    problem = settings.problem()
    assert problem is not None
    assert problem.startswith(field)
    assert QueueSettings().problem() is None


def test_each_final_state_has_its_own_retention() -> None:
    done, failed, cancelled = Retention(1.0), Retention(2.0), Retention(3.0)
    settings = QueueSettings(keep_done=done, keep_failed=failed, keep_cancelled=cancelled)
    kept = [settings.retention(state) for state in (State.DONE, State.FAILED, State.CANCELLED)]
    assert kept == [done, failed, cancelled]


def test_a_pause_ends_at_its_end_time() -> None:
    assert Pause(0.0).closed(10**12)
    assert Pause(0.0, until=5.0).closed(4.999)
    assert not Pause(0.0, until=5.0).closed(5.0)
