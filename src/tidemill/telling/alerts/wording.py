"""A message as people read it: what, where, since when, and where to look."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import quote

import msgspec

from tidemill.telling.alerts.book import Alert, Happened, Notice
from tidemill.telling.alerts.rule import On

MINUTE, HOUR, DAY = 60, 3600, 86_400
MEGABYTE = 1024 * 1024


class Message(msgspec.Struct, frozen=True):
    title: str
    text: str


def message(notices: Sequence[Notice], where: str, url: str | None) -> Message:
    """`where` is the store, as it may be shown; `url` that of the dashboard, None where there is none."""
    first = notices[0]
    title = f"{sentence(first.alert)}{_ENDING[first.what]}"
    if len(notices) > 1:
        title += f", and {len(notices) - 1} more"
    parts = [_part(notice, url) for notice in notices]
    return Message(f"[Tidemill] {title}", "\n\n".join([*parts, f"Store: {where}"]) + "\n")


def _part(notice: Notice, url: str | None) -> str:
    alert = notice.alert
    lines = [f"{sentence(alert)}{_ENDING[notice.what]}"]
    if notice.what is not Happened.OVER:
        lines[0] += f" (more than {_amount(alert.on, alert.threshold)})" if alert.on in _COUNTED else ""
    lines.append(f"Rule: {alert.rule}")
    lines.append(f"Since: {_moment(alert.since)}")
    if notice.what is not Happened.RAISED:
        lines.append(f"Now: {_moment(notice.at)}")
    if url is not None:
        lines.append(f"Look: {url.rstrip('/')}{page(alert)}")
    return "\n".join(lines)


def sentence(alert: Alert) -> str:
    value = _amount(alert.on, alert.value)
    match alert.on:
        case On.QUEUE_LENGTH:
            return f"queue {alert.subject}: {value} jobs wait"
        case On.OLDEST_JOB:
            return f"queue {alert.subject}: a job has waited for {value}"
        case On.FAILURE_RATIO:
            return f"queue {alert.subject}: {value} of its jobs fail"
        case On.DEAD_LETTERS:
            return f"queue {alert.subject}: {value} jobs failed for good"
        case On.POOL_CLOSED:
            return f"pool {alert.subject}: closed for {value}"
        case On.WORKER_GONE:
            return f"worker {alert.subject}: gone without a farewell"
        case On.STORE_SIZE:
            return f"the store takes {value}"
        case On.STORE_LOST:
            return f"{alert.subject}: the store has not answered for {value}"
    return f"{alert.rule}{f' {alert.subject}' if alert.subject else ''}: {value}"


def page(alert: Alert) -> str:
    """Where on the dashboard it is to be seen."""
    match alert.on:
        case On.QUEUE_LENGTH | On.OLDEST_JOB | On.FAILURE_RATIO:
            return f"/queues/{quote(alert.subject, safe='')}"
        case On.DEAD_LETTERS:
            return f"/dead-letters?queue={quote(alert.subject, safe='')}"
        case On.POOL_CLOSED:
            return f"/pools/{quote(alert.subject.partition(' ')[0], safe='')}"
        case On.WORKER_GONE:
            return "/workers"
    return "/alerts"


def _amount(on: On, value: float) -> str:
    if on in {On.OLDEST_JOB, On.POOL_CLOSED, On.STORE_LOST}:
        return _duration(value)
    if on is On.STORE_SIZE:
        return f"{value / MEGABYTE:,.0f} MB".replace(",", " ")
    return f"{100 * value:.0f} %" if on is On.FAILURE_RATIO else f"{value:,.10g}".replace(",", " ")


def _duration(seconds: float) -> str:
    for size, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _moment(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


_ENDING = {Happened.RAISED: "", Happened.STILL: " (still)", Happened.OVER: " (over)"}
_COUNTED = frozenset(On) - {On.WORKER_GONE}
