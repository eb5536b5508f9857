"""Overrides of queues, pools and schedules follow the same rules."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from tidemill.core.limits import Limit
from tidemill.core.overrides import (
    Override,
    SettingChanges,
    apply_override,
    clear_override,
    join_override,
    override_in_force,
)
from tidemill.core.pools import LimitChanges, PoolSettings
from tidemill.core.queues import QueueChanges, QueueSettings
from tidemill.schedules.settings import ScheduleChanges, ScheduleSettings

MINUTE, TOKENS = "requests per minute", "tokens per minute"
POOL = PoolSettings(limits=(Limit.requests(9, per="minute"), Limit.tokens(900, per="minute")))
KINDS = [
    pytest.param(QueueChanges(weight=4), QueueChanges(concurrency=2), QueueSettings(), id="queue"),
    pytest.param(LimitChanges(amounts={MINUTE: 4}), LimitChanges(amounts={TOKENS: 2}), POOL, id="pool"),
    pytest.param(
        ScheduleChanges(cron="0 4 * * *"),
        ScheduleChanges(jitter=2.0),
        ScheduleSettings(every=60),
        id="schedule",
    ),
]


def signed(changes: SettingChanges[Any], since: float = 0.0, until: float | None = None) -> Override[Any]:
    return Override(changes=changes, by="ann", reason="slow", since=since, until=until)


@pytest.mark.parametrize(("first", "second", "declared"), KINDS)
def test_q2_p2_changes_join_the_override_in_force(first: Any, second: Any, declared: Any) -> None:
    join = join_override(second, by="bo", reason=None, until=UNSET)
    joined = join(signed(first, until=9.0), 5.0)
    assert joined is not None
    assert joined.changes.given() == first.given() | second.given()
    assert (joined.by, joined.reason, joined.since, joined.until) == ("bo", None, 5.0, 9.0)
    assert apply_override(declared, joined, 8.9) == second.over(first.over(declared))
    assert apply_override(declared, joined, 9.0) == declared
    assert join(signed(first, until=5.0), 5.0) == Override(changes=second, by="bo", since=5.0)


@pytest.mark.parametrize(("first", "second", "declared"), KINDS)
@pytest.mark.parametrize("until", [None, 20.0])
def test_q2_p2_a_given_end_replaces_the_end(
    first: Any, second: Any, declared: Any, until: float | None
) -> None:
    joined = join_override(second, by="bo", reason=None, until=until)(signed(first, until=9.0), 5.0)
    assert joined is not None
    assert joined.until == until
    assert joined.problem(declared) is None


@pytest.mark.parametrize(("first", "second", "declared"), KINDS)
def test_q6_p22_names_are_removed_and_the_rest_stays(first: Any, second: Any, declared: Any) -> None:
    both = signed(first.join(second), since=1.0, until=9.0)
    assert clear_override(tuple(first.given()))(both, 5.0) == signed(second, since=1.0, until=9.0)
    assert clear_override((*first.given(), *second.given()))(both, 5.0) is None
    assert clear_override(())(both, 5.0) is None
    assert clear_override(("other",))(both, 5.0) == both
    assert clear_override(())(None, 5.0) is None
    assert apply_override(declared, None, 5.0) == declared


@pytest.mark.parametrize(("first", "second", "declared"), KINDS)
def test_an_override_survives_json(first: Any, second: Any, declared: Any) -> None:
    stored = msgspec.json.encode(signed(first.join(second), until=9.0))
    kind: Any = Override[type(first)]  # type: ignore[misc]
    found = msgspec.json.decode(stored, type=kind)
    assert found == signed(first.join(second), until=9.0)
    assert found.problem(declared) is None
    assert override_in_force(found, 8.9) is found
    assert override_in_force(found, 9.0) is None


def test_a_new_rule_of_a_schedule_replaces_the_other_kind_of_rule() -> None:
    before = signed(ScheduleChanges(cron="0 4 * * *", tz="Asia/Shanghai"))
    joined = join_override(ScheduleChanges(every=60.0), by="ann", reason=None, until=UNSET)(before, 1.0)
    assert joined is not None
    assert joined.changes == ScheduleChanges(every=60.0, tz="Asia/Shanghai")
