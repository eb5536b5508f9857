"""From what is known and what was measured to what follows: pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from tidemill.telling.alerts.book import Alert, Book, Happened, Notice, Stage, place
from tidemill.telling.alerts.rule import Rule

REMEMBERED = 3600.0
MOST_NOTICES = 200
"""A message that nobody would read to its end has no more of them."""


MOST_ALERTS = 2000
"""One record holds them; a pool may have a hundred thousand keys that close at once."""


class Told(NamedTuple):
    """The book as it becomes, and the notices that go out with this."""

    book: Book
    notices: tuple[Notice, ...]


Measured = Mapping[str, Mapping[str, float]]
"""Values by rule and subject."""


def decide(
    book: Book, rules: Mapping[str, Rule], measured: Measured, now: float, *, repeat: float, digest: float
) -> Told:
    """Alerts of rules that are not known here are left alone: another program has them. So are those of a
    rule that could not be measured this time."""
    book = _not_after(book, now)
    alerts, notices = dict(book.alerts), list(book.notices)
    for name, values in measured.items():
        rule = rules[name]
        known = {alert.subject for alert in book.alerts.values() if alert.rule == name}
        for subject in sorted({*values, *known}):
            key, value = place(name, subject), values.get(subject, 0.0)
            after, what = _step(alerts.get(key) or _none(name, rule, subject), rule, value, now, repeat)
            alerts.pop(key, None)
            if after is not None and len(alerts) < MOST_ALERTS:
                alerts[key] = after
            if key in alerts and after is not None and what is not None and len(notices) < MOST_NOTICES:
                notices.append(Notice(what=what, at=now, alert=after))
    if notices and now - min(one.at for one in notices) >= digest:
        return Told(replace(book, alerts=alerts, notices=()), tuple(notices))
    return Told(replace(book, alerts=alerts, notices=tuple(notices)), ())


def _not_after(book: Book, now: float) -> Book:
    """A wall clock that was set back leaves times that are yet to come, and would be waited for."""
    alerts = {
        key: replace(one, since=min(one.since, now), said=None if one.said is None else min(one.said, now))
        for key, one in book.alerts.items()
    }
    notices = tuple(replace(one, at=min(one.at, now)) for one in book.notices)
    return replace(book, alerts=alerts, notices=notices)


def _none(name: str, rule: Rule, subject: str) -> Alert:
    return Alert(
        rule=name,
        on=rule.on,
        subject=subject,
        stage=Stage.OVER,
        since=0.0,
        value=0.0,
        threshold=rule.raises_at,
    )


def _step(
    alert: Alert, rule: Rule, value: float, now: float, repeat: float
) -> tuple[Alert | None, Happened | None]:
    """None for an alert that nothing is to be known of any more."""
    alert = replace(alert, value=value, threshold=rule.raises_at)
    if alert.stage is Stage.RAISED:
        return _while_raised(alert, rule, value, now, repeat)
    if value <= rule.raises_at:
        recent = alert.said is not None and now - alert.said < repeat
        return (replace(alert, stage=Stage.OVER) if recent else None), None
    if alert.stage is Stage.OVER:
        alert = replace(alert, stage=Stage.WAITING, since=now)
    if now - alert.since < rule.lasting:
        return alert, None
    alert = replace(alert, stage=Stage.RAISED)
    if alert.said is not None and now - alert.said < repeat:
        return alert, None  # people know that it comes and goes; if it stays they are told again
    return replace(alert, said=now), Happened.RAISED


def _while_raised(
    alert: Alert, rule: Rule, value: float, now: float, repeat: float
) -> tuple[Alert | None, Happened | None]:
    if value <= rule.clears_at:
        was_told = alert.said is not None and alert.said >= alert.since
        return replace(alert, stage=Stage.OVER), Happened.OVER if was_told else None
    if alert.said is None or now - alert.said >= repeat:
        return replace(alert, said=now), Happened.STILL
    return alert, None


def worker_ends(book: Book, alive: Mapping[str, float], now: float, window: float) -> Book:
    """A worker that stops says so in the book; one that is off the list of workers without that has died."""
    left = _lately(book.left, now, REMEMBERED)
    died = {worker: now for worker in book.workers if worker not in alive and worker not in left}
    gone = _lately(book.gone, now, window)
    return replace(book, workers=tuple(sorted(alive)), left=left, gone=gone | died)


def worker_left(book: Book, worker: str, now: float) -> Book:
    return replace(book, left={**_lately(book.left, now, REMEMBERED), worker: now})


def _lately(ends: Mapping[str, float], now: float, window: float) -> dict[str, float]:
    return {worker: min(at, now) for worker, at in ends.items() if now - at < window}
