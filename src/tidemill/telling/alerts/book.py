"""What is wrong now, and what was said of it, as the store keeps it: so a fleet says everything once."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from tidemill.telling.alerts.rule import On

RECORD_NAME = "alert"
BOOK_ID = "alerts"


class Stage(StrEnum):
    WAITING = "waiting"  # over the threshold, not for long enough
    RAISED = "raised"
    OVER = "over"  # kept for a while: who raises it again soon says nothing new


class Happened(StrEnum):
    RAISED = "raised"
    STILL = "still"
    OVER = "over"


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a rule found. `since` is when it went over its threshold, `said` when people were last
    told that it is raised, None when they were not. Times are wall times."""

    rule: str
    on: On
    subject: str
    stage: Stage
    since: float
    value: float
    threshold: float
    said: float | None = None


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be said of an alert."""

    what: Happened
    at: float
    alert: Alert


class Book(msgspec.Struct, frozen=True, kw_only=True):
    """`alerts` by rule and subject. `notices` wait for others to share their message. `workers`
    were alive at the last look, `left` is when one said that it stops, `gone` when one was found missing."""

    alerts: dict[str, Alert] = {}
    notices: tuple[Notice, ...] = ()
    workers: tuple[str, ...] = ()
    left: dict[str, float] = {}
    gone: dict[str, float] = {}


def place(rule: str, subject: str) -> str:
    return f"{rule}\x1f{subject}"
