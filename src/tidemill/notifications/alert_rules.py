"""Alert rules, the stored state of alerts, and the function that computes the next state from measured
values."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from tidemill.core.validation import problem_with_name
from tidemill.errors import ConfigurationError

MINUTE_SECONDS = 60.0


class AlertKind(StrEnum):
    QUEUE_LENGTH = "queue_length"  # jobs that are ready or scheduled
    OLDEST_JOB = "oldest_job"  # seconds the longest waiting ready job has waited
    FAILURE_RATIO = "failure_ratio"  # share of the jobs finished within the window that failed, 0 to 1
    DEAD_LETTERS = "dead_letters"  # jobs that failed for good within the window
    POOL_CLOSED = "pool_closed"  # seconds a pool has been closed
    WORKER_GONE = "worker_gone"  # workers that disappeared within the window without a normal stop
    STORE_SIZE = "store_size"  # bytes of memory or disk that the store uses
    STORE_LOST = "store_lost"  # seconds without the store
    OWN = "own"  # a measure function of the application


MeasureFunction = Callable[[], Awaitable[float | Mapping[str, float]] | float | Mapping[str, float]]
"""An application's measure: returns one number, or a number for each subject by name."""

DEFAULT_THRESHOLDS: Mapping[AlertKind, float] = {
    AlertKind.OLDEST_JOB: 15 * MINUTE_SECONDS,
    AlertKind.FAILURE_RATIO: 0.5,
    AlertKind.DEAD_LETTERS: 0.0,
    AlertKind.POOL_CLOSED: 10 * MINUTE_SECONDS,
    AlertKind.WORKER_GONE: 0.0,
    AlertKind.STORE_LOST: 30.0,
}
"""Default thresholds. Queue length and store size have none: a sensible value depends on the application."""


class AlertRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule that raises an alert when a value stays over a threshold for `min_duration` seconds.

    - `on`: which value is compared, such as the length of a queue
    - `above`: the threshold; None for the default of this kind of value
    - `clear`: the alert ends when the value is at most this; None for the same as `above`
    - `queue`, `pool`: restrict the rule to one queue or pool; None checks each one separately
    - `window`: how many seconds before now the rule counts, for example finished jobs
    - `min_jobs`: with fewer finished jobs the failure ratio counts as 0
    """

    on: AlertKind
    above: float | None = None
    clear: float | None = None
    min_duration: float = 0.0
    queue: str | None = None
    pool: str | None = None
    window: float = 5 * MINUTE_SECONDS
    min_jobs: int = 10

    @property
    def raise_threshold(self) -> float:
        return self.above if self.above is not None else DEFAULT_THRESHOLDS.get(self.on, 0.0)

    @property
    def clear_threshold(self) -> float:
        return self.raise_threshold if self.clear is None else self.clear

    def problem(self) -> str | None:
        """Returns a text that says which field is invalid and why; None if the rule is valid."""
        if self.above is None and self.on not in DEFAULT_THRESHOLDS:
            return f"above: must be given for {self.on}"
        numbers = {
            "above": self.raise_threshold,
            "clear": self.clear_threshold,
            "min_duration": self.min_duration,
        }
        for field, value in numbers.items():
            if not _is_non_negative(value):
                return f"{field}: must be a number, 0 or more, is {value!r}"
        if self.clear_threshold > self.raise_threshold:
            return (
                f"clear: must not be over {self.raise_threshold:g}, where it is raised, "
                f"is {self.clear_threshold:g}"
            )
        if not _is_non_negative(self.window) or self.window < MINUTE_SECONDS:
            return f"window: must be 60 seconds or more, is {self.window!r}: ends are counted by the minute"
        for field in ("queue", "pool"):
            name = getattr(self, field)
            if name is not None and (problem := problem_with_name(field, name)):
                return problem
        return None


def _is_non_negative(value: Any) -> bool:
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return is_real and math.isfinite(value) and value >= 0


def parse_rule(name: str, fields: Mapping[str, Any]) -> AlertRule:
    """Returns the rule `name` built from `fields`. Raises ConfigurationError, whose message names the wrong
    field."""
    try:
        rule = msgspec.convert(fields, AlertRule)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"alert {name!r}: {error}") from None
    if problem := problem_with_name("name", name) or rule.problem():
        raise ConfigurationError(f"alert {name!r}: {problem}")
    return rule


DEFAULT_RULES: Mapping[str, AlertRule] = {
    "dead letters": AlertRule(on=AlertKind.DEAD_LETTERS),
    "pool closed": AlertRule(on=AlertKind.POOL_CLOSED),
    "oldest job": AlertRule(on=AlertKind.OLDEST_JOB, clear=MINUTE_SECONDS),
    "worker gone": AlertRule(on=AlertKind.WORKER_GONE),
    "store lost": AlertRule(on=AlertKind.STORE_LOST),
}
"""Default rules, used when a channel is configured but no rule is."""


ALERT_DOCUMENT = "alert"
ALERT_DOCUMENT_ID = "alerts"


class AlertStage(StrEnum):
    WAITING = "waiting"  # over the threshold, but not yet for `min_duration`
    RAISED = "raised"
    OVER = "over"  # kept for a while: raised again within `repeat` seconds, it sends no new message


class AlertChange(StrEnum):
    RAISED = "raised"
    STILL = "still"
    OVER = "over"


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one rule for one `subject`, such as a queue. Times are wall times.

    - `since`: when the value went over the threshold
    - `last_sent`: when the last message about the alert was sent; None if there was none
    """

    rule: str
    on: AlertKind
    subject: str
    stage: AlertStage
    since: float
    value: float
    threshold: float
    last_sent: float | None = None


class AlertNotice(msgspec.Struct, frozen=True, kw_only=True):
    """A change of an alert that is reported in a message. `at` is the wall time of the change."""

    what: AlertChange
    at: float
    alert: Alert


class AlertState(msgspec.Struct, frozen=True, kw_only=True):
    """The stored state of all alerts.

    - `alerts`: the alerts by rule and subject
    - `notices`: changes that wait to be sent together in one message
    - `workers`: the workers that were alive at the last evaluation
    - `recent_exits`: the wall times of normal stops, by worker
    - `lost_workers`: the wall times at which workers were found missing, by worker
    """

    alerts: dict[str, Alert] = {}
    notices: tuple[AlertNotice, ...] = ()
    workers: tuple[str, ...] = ()
    recent_exits: dict[str, float] = {}
    lost_workers: dict[str, float] = {}


def alert_key(rule: str, subject: str) -> str:
    return f"{rule}\x1f{subject}"


WORKER_EXIT_MEMORY_SECONDS = 3600.0
MAX_NOTICES = 200
"""A longer message would not be read to its end."""


MAX_ALERTS = 2000
"""All alerts are in one document, and a pool may have 100 000 keys that close at the same time."""


class AlertDecision(NamedTuple):
    """The next alert state, and the notices to send now."""

    alert_state: AlertState
    notices: tuple[AlertNotice, ...]


Readings = Mapping[str, Mapping[str, float]]
"""Measured values by rule and subject."""


def evaluate_rules(
    alert_state: AlertState,
    rules: Mapping[str, AlertRule],
    measured: Readings,
    now: float,
    *,
    repeat: float,
    digest: float,
) -> AlertDecision:
    """Returns the next alert state and the notices to send now. A raised alert is reported again every
    `repeat` seconds. Notices are collected for `digest` seconds. Alerts of rules that are not in `measured`
    stay unchanged."""
    alert_state = _clamp_times(alert_state, now)
    alerts, notices = dict(alert_state.alerts), list(alert_state.notices)
    for name, values in measured.items():
        rule = rules[name]
        known = {alert.subject for alert in alert_state.alerts.values() if alert.rule == name}
        for subject in sorted({*values, *known}):
            key, value = alert_key(name, subject), values.get(subject, 0.0)
            after, what = _next_alert(
                alerts.get(key) or _new_alert(name, rule, subject), rule, value, now, repeat
            )
            alerts.pop(key, None)
            if after is not None and len(alerts) < MAX_ALERTS:
                alerts[key] = after
            if key in alerts and after is not None and what is not None and len(notices) < MAX_NOTICES:
                notices.append(AlertNotice(what=what, at=now, alert=after))
    if notices and now - min(notice.at for notice in notices) >= digest:
        return AlertDecision(replace(alert_state, alerts=alerts, notices=()), tuple(notices))
    return AlertDecision(replace(alert_state, alerts=alerts, notices=tuple(notices)), ())


def _clamp_times(alert_state: AlertState, now: float) -> AlertState:
    """Returns the state with every time in the future replaced by `now`. Such times exist after the wall
    clock was set back, and would delay messages."""
    alerts = {
        key: replace(
            entry,
            since=min(entry.since, now),
            last_sent=None if entry.last_sent is None else min(entry.last_sent, now),
        )
        for key, entry in alert_state.alerts.items()
    }
    notices = tuple(replace(entry, at=min(entry.at, now)) for entry in alert_state.notices)
    return replace(alert_state, alerts=alerts, notices=notices)


def _new_alert(name: str, rule: AlertRule, subject: str) -> Alert:
    return Alert(
        rule=name,
        on=rule.on,
        subject=subject,
        stage=AlertStage.OVER,
        since=0.0,
        value=0.0,
        threshold=rule.raise_threshold,
    )


def _next_alert(
    alert: Alert, rule: AlertRule, value: float, now: float, repeat: float
) -> tuple[Alert | None, AlertChange | None]:
    """Returns the alert's next state, and the change to report. The state is None if the alert is over. The
    change is None if there is nothing to report."""
    alert = replace(alert, value=value, threshold=rule.raise_threshold)
    if alert.stage is AlertStage.RAISED:
        return _next_raised_alert(alert, rule, value, now, repeat)
    if value <= rule.raise_threshold:
        recent = alert.last_sent is not None and now - alert.last_sent < repeat
        return (replace(alert, stage=AlertStage.OVER) if recent else None), None
    if alert.stage is AlertStage.OVER:
        alert = replace(alert, stage=AlertStage.WAITING, since=now)
    if now - alert.since < rule.min_duration:
        return alert, None
    alert = replace(alert, stage=AlertStage.RAISED)
    if alert.last_sent is not None and now - alert.last_sent < repeat:
        return alert, None  # it flaps; if it stays raised, STILL is sent after `repeat` seconds
    return replace(alert, last_sent=now), AlertChange.RAISED


def _next_raised_alert(
    alert: Alert, rule: AlertRule, value: float, now: float, repeat: float
) -> tuple[Alert | None, AlertChange | None]:
    if value <= rule.clear_threshold:
        was_sent = alert.last_sent is not None and alert.last_sent >= alert.since
        return replace(alert, stage=AlertStage.OVER), AlertChange.OVER if was_sent else None
    if alert.last_sent is None or now - alert.last_sent >= repeat:
        return replace(alert, last_sent=now), AlertChange.STILL
    return alert, None


def track_workers(
    alert_state: AlertState, alive: Mapping[str, float], now: float, window: float
) -> AlertState:
    """Returns the alert state with `alive` as its workers. A worker that disappeared without a normal stop
    counts as lost for `window` seconds."""
    recent_exits = _recent_exits(alert_state.recent_exits, now, WORKER_EXIT_MEMORY_SECONDS)
    died = {
        worker: now for worker in alert_state.workers if worker not in alive and worker not in recent_exits
    }
    lost_workers = _recent_exits(alert_state.lost_workers, now, window)
    return replace(
        alert_state, workers=tuple(sorted(alive)), recent_exits=recent_exits, lost_workers=lost_workers | died
    )


def record_worker_exit(alert_state: AlertState, worker: str, now: float) -> AlertState:
    return replace(
        alert_state,
        recent_exits={
            **_recent_exits(alert_state.recent_exits, now, WORKER_EXIT_MEMORY_SECONDS),
            worker: now,
        },
    )


def _recent_exits(exit_times: Mapping[str, float], now: float, window: float) -> dict[str, float]:
    return {worker: min(at, now) for worker, at in exit_times.items() if now - at < window}
