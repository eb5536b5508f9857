"""Alerts are sent once, only for a lasting problem, and several in one message (Q12)."""

from __future__ import annotations

from tidemill.notifications.alert_rules import (
    MAX_ALERTS,
    MAX_NOTICES,
    AlertChange,
    AlertKind,
    AlertNotice,
    AlertRule,
    AlertStage,
    AlertState,
    evaluate_rules,
    record_worker_exit,
    track_workers,
)

REPEAT, DIGEST = 3600.0, 0.0
RULES = {"long": AlertRule(on=AlertKind.QUEUE_LENGTH, above=1000, clear=500, min_duration=60)}


class AlertRun:
    """Evaluates rules over time and returns the changes that are sent."""

    def __init__(self, rules: dict[str, AlertRule] = RULES, digest: float = DIGEST) -> None:
        self.alert_state, self.rules, self.digest = AlertState(), rules, digest

    def at(self, now: float, **values: float) -> list[tuple[AlertChange, str]]:
        return [(one.what, one.alert.subject) for one in self.notices(now, **values)]

    def notices(self, now: float, **values: float) -> tuple[AlertNotice, ...]:
        evaluation = evaluate_rules(
            self.alert_state, self.rules, {"long": values}, now, repeat=REPEAT, digest=self.digest
        )
        self.alert_state = evaluation.alert_state
        return evaluation.notices


def test_it_is_raised_when_it_has_lasted_and_over_when_it_is_well_below() -> None:
    alerts = AlertRun()
    assert alerts.at(0, feeds=1001) == []
    assert alerts.at(59, feeds=1200) == []
    assert alerts.at(60, feeds=1100) == [(AlertChange.RAISED, "feeds")]
    assert alerts.at(75, feeds=900) == []  # below the raise threshold, above the clear threshold
    assert alerts.at(90, feeds=1100) == []
    assert alerts.at(105, feeds=500) == [(AlertChange.OVER, "feeds")]


def test_a_short_peak_raises_no_alert() -> None:
    alerts = AlertRun()
    assert [alerts.at(now, feeds=1500 if now % 60 < 45 else 10) for now in range(0, 600, 15)] == [[]] * 40
    assert AlertRun().at(0, feeds=1000) == []


def test_a_lasting_alert_is_repeated_at_the_set_interval() -> None:
    alerts = AlertRun()
    changes = {now: alerts.at(now, feeds=2000) for now in range(0, 3 * 3600, 60)}
    assert {now: what for now, what in changes.items() if what} == {
        60: [(AlertChange.RAISED, "feeds")],
        60 + 3600: [(AlertChange.STILL, "feeds")],
        60 + 7200: [(AlertChange.STILL, "feeds")],
    }


def test_a_flapping_value_raises_one_alert_per_repeat_interval() -> None:
    alerts = AlertRun({"long": AlertRule(on=AlertKind.QUEUE_LENGTH, above=1000)})
    changes = [alerts.at(now, feeds=2000 if now % 120 == 0 else 0) for now in range(0, 3600, 60)]
    assert changes[:2] == [[(AlertChange.RAISED, "feeds")], [(AlertChange.OVER, "feeds")]]
    assert not any(changes[2:])
    assert alerts.at(3660, feeds=2000) == [(AlertChange.RAISED, "feeds")]


def test_each_queue_has_its_own_alert_and_a_removed_queue_ends_it() -> None:
    alerts = AlertRun({"long": AlertRule(on=AlertKind.QUEUE_LENGTH, above=1000)})
    assert alerts.at(0, feeds=2000, mail=5) == [(AlertChange.RAISED, "feeds")]
    assert alerts.at(10, mail=2000) == [(AlertChange.OVER, "feeds"), (AlertChange.RAISED, "mail")]


def test_alerts_within_the_digest_time_are_one_message() -> None:
    alerts = AlertRun({"long": AlertRule(on=AlertKind.QUEUE_LENGTH, above=1000)}, digest=30)
    assert alerts.at(0, feeds=2000) == []
    assert alerts.at(15, feeds=2000, mail=2000) == []
    assert alerts.at(30, feeds=2000, mail=2000) == [
        (AlertChange.RAISED, "feeds"),
        (AlertChange.RAISED, "mail"),
    ]
    assert alerts.at(45, feeds=2000, mail=2000) == []


def test_rules_of_another_program_are_left_alone() -> None:
    alerts = AlertRun({"long": AlertRule(on=AlertKind.QUEUE_LENGTH, above=1000)})
    alerts.at(0, feeds=2000)
    after = evaluate_rules(alerts.alert_state, {}, {}, 100, repeat=REPEAT, digest=DIGEST).alert_state
    assert after.alerts == alerts.alert_state.alerts
    assert [alert.stage for alert in after.alerts.values()] == [AlertStage.RAISED]


def test_a_worker_that_stopped_cleanly_is_not_lost() -> None:
    alert_state = track_workers(AlertState(), {"a": 0.0, "b": 0.0}, 0, 600)
    alert_state = record_worker_exit(alert_state, "a", 5)
    alert_state = track_workers(alert_state, {"a": 5.0, "b": 5.0}, 6, 600)  # "a" is still listed
    alert_state = track_workers(alert_state, {}, 30, 600)
    assert alert_state.lost_workers == {"b": 30}
    assert track_workers(alert_state, {}, 629, 600).lost_workers == {"b": 30}
    assert track_workers(alert_state, {}, 630, 600).lost_workers == {}


def test_a_wall_clock_that_was_set_back_silences_nothing() -> None:
    alerts = AlertRun(digest=30)
    alerts.at(90_000, feeds=2000)
    alerts.at(90_061, feeds=2000)  # raised; the notice waits for the digest
    assert alerts.at(3_690, feeds=2000) == []
    assert alerts.at(3_720, feeds=2000) == [(AlertChange.RAISED, "feeds")]
    assert alerts.at(7_320, feeds=2000) == []
    assert alerts.at(7_350, feeds=2000) == [(AlertChange.STILL, "feeds")]
    waits = AlertRun()
    waits.at(90_000, feeds=2000)
    waits.at(3_600, feeds=2000)
    assert waits.at(3_660, feeds=2000) == [(AlertChange.RAISED, "feeds")]
    assert track_workers(AlertState(lost_workers={"a": 90_000.0}), {}, 3_600, 600).lost_workers == {
        "a": 3_600
    }


def test_a_hundred_thousand_keys_that_close_at_once_fit_a_record() -> None:
    alerts = AlertRun({"long": AlertRule(on=AlertKind.QUEUE_LENGTH, above=0)})
    keys = {f"key {number}": 1.0 for number in range(5000)}
    assert len(alerts.at(0, **keys)) == MAX_NOTICES
    assert len(alerts.alert_state.alerts) == MAX_ALERTS
    alerts.at(15, **dict.fromkeys(keys, 0.0))
    alerts.at(4000, **dict.fromkeys(keys, 0.0))
    assert alerts.alert_state.alerts == {}
