"""Formats alert messages: the problem, the queue, pool or worker it is about, its start, and the dashboard
page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import quote

import msgspec

from tidemill.notifications.alert_rules import Alert, AlertChange, AlertKind, AlertNotice

MINUTE_SECONDS, HOUR_SECONDS, DAY_SECONDS = 60, 3600, 86_400
MEGABYTE_BYTES = 1024 * 1024


class AlertMessage(msgspec.Struct, frozen=True):
    title: str
    text: str


def format_message(notices: Sequence[AlertNotice], where: str, url: str | None) -> AlertMessage:
    """Returns one message for all `notices`. `where` is the store's address without secrets. `url` is the
    dashboard's address; None if there is no dashboard."""
    first = notices[0]
    title = f"{describe_alert(first.alert)}{_CHANGE_SUFFIXES[first.what]}"
    if len(notices) > 1:
        title += f", and {len(notices) - 1} more"
    parts = [_format_notice(notice, url) for notice in notices]
    return AlertMessage(f"[Tidemill] {title}", "\n\n".join([*parts, f"Store: {where}"]) + "\n")


def _format_notice(notice: AlertNotice, url: str | None) -> str:
    alert = notice.alert
    lines = [f"{describe_alert(alert)}{_CHANGE_SUFFIXES[notice.what]}"]
    if notice.what is not AlertChange.OVER and alert.on in _KINDS_WITH_THRESHOLD:
        lines[0] += f" (more than {_format_value(alert.on, alert.threshold)})"
    lines.append(f"Rule: {alert.rule}")
    lines.append(f"Since: {_format_time(alert.since)}")
    if notice.what is not AlertChange.RAISED:
        lines.append(f"Now: {_format_time(notice.at)}")
    if url is not None:
        lines.append(f"Look: {url.rstrip('/')}{dashboard_path(alert)}")
    return "\n".join(lines)


def describe_alert(alert: Alert) -> str:
    value = _format_value(alert.on, alert.value)
    match alert.on:
        case AlertKind.QUEUE_LENGTH:
            return f"queue {alert.subject}: {value} jobs wait"
        case AlertKind.OLDEST_JOB:
            return f"queue {alert.subject}: a job has waited for {value}"
        case AlertKind.FAILURE_RATIO:
            return f"queue {alert.subject}: {value} of its jobs fail"
        case AlertKind.DEAD_LETTERS:
            return f"queue {alert.subject}: {value} jobs failed for good"
        case AlertKind.POOL_CLOSED:
            return f"pool {alert.subject}: closed for {value}"
        case AlertKind.WORKER_GONE:
            return f"worker {alert.subject}: stopped without signing off"
        case AlertKind.STORE_SIZE:
            return f"the store takes {value}"
        case AlertKind.STORE_LOST:
            return f"{alert.subject}: the store has not answered for {value}"
    return f"{alert.rule}{f' {alert.subject}' if alert.subject else ''}: {value}"


def dashboard_path(alert: Alert) -> str:
    """Returns the path of the dashboard page that shows the queue, pool or workers that the alert is
    about."""
    match alert.on:
        case AlertKind.QUEUE_LENGTH | AlertKind.OLDEST_JOB | AlertKind.FAILURE_RATIO:
            return f"/queues/{quote(alert.subject, safe='')}"
        case AlertKind.DEAD_LETTERS:
            return f"/dead-letters?queue={quote(alert.subject, safe='')}"
        case AlertKind.POOL_CLOSED:
            return f"/pools/{quote(alert.subject.partition(' ')[0], safe='')}"
        case AlertKind.WORKER_GONE:
            return "/workers"
    return "/alerts"


def _format_value(on: AlertKind, value: float) -> str:
    if on in {AlertKind.OLDEST_JOB, AlertKind.POOL_CLOSED, AlertKind.STORE_LOST}:
        return _format_duration(value)
    if on is AlertKind.STORE_SIZE:
        return f"{value / MEGABYTE_BYTES:,.0f} MB".replace(",", " ")
    return f"{100 * value:.0f} %" if on is AlertKind.FAILURE_RATIO else f"{value:,.10g}".replace(",", " ")


def _format_duration(seconds: float) -> str:
    for size, unit in ((DAY_SECONDS, "d"), (HOUR_SECONDS, "h"), (MINUTE_SECONDS, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _format_time(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


_CHANGE_SUFFIXES = {AlertChange.RAISED: "", AlertChange.STILL: " (still)", AlertChange.OVER: " (over)"}
_KINDS_WITH_THRESHOLD = frozenset(AlertKind) - {AlertKind.WORKER_GONE}
