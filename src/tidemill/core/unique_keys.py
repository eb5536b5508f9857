"""Unique keys: one live job per queue and key, and what a second request for the key does."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from tidemill.core.states import LIVE, State
from tidemill.core.validation import is_number, problem_with_name
from tidemill.times import to_seconds

if TYPE_CHECKING:
    from tidemill.core.jobs import Job


OnConflict = Literal["skip", "replace", "merge", "rerun"]
_CHOICES = get_args(OnConflict)


class Unique(msgspec.Struct, frozen=True):
    """A key that at most one live job of a queue may hold. By default the key is free when its job ends.

    - `on_conflict`: what happens to a second request for a held key.
    - `period`: holds the key for this many seconds, even after the job has ended.
    - `at_most`: frees the key when the job ends, and at the latest after this many seconds."""

    key: str
    on_conflict: OnConflict = "skip"
    period: float | timedelta | None = None
    at_most: float | timedelta | None = None

    @property
    def lasts(self) -> float | None:
        """Seconds after which the key is free in any case; None if only the job's end frees it."""
        seconds = self.at_most if self.period is None else self.period
        return None if seconds is None else to_seconds(seconds)

    def problem(self) -> str | None:
        if not isinstance(self.key, str):
            return f"unique.key: must be a string, is {self.key!r}"
        if problem := problem_with_name("unique.key", self.key):
            return problem
        if self.on_conflict not in _CHOICES:
            return f"unique.on_conflict: must be one of {', '.join(_CHOICES)}, is {self.on_conflict!r}"
        if self.period is not None and self.at_most is not None:
            return "unique.period: give either period or at_most, not both"
        for field, value in (("period", self.period), ("at_most", self.at_most)):
            if value is not None and not (is_number(to_seconds(value), 0) and value):
                return f"unique.{field}: must be a number of seconds or a timedelta above 0, is {value!r}"
        return None


class Conflict(StrEnum):
    """The action of a store on a request whose unique key another job, the holder, has.

    - `existing`: returns the holder and changes nothing.
    - `merge`: merges the request into the holder.
    - `replace`: cancels the holder and stores the request.
    - `succeed`: stores the request as a successor, which waits until the holder has run."""

    EXISTING = "existing"  # return the holder, change nothing
    MERGE = "merge"  # merge the request into the holder
    REPLACE = "replace"  # cancel the holder, insert the request
    SUCCEED = "succeed"  # insert the request; it waits for the holder's run to end


def holds_key(job: Job, now: float) -> bool:
    if job.unique_key is None:
        return False
    if job.unique_until is not None and now >= job.unique_until:
        return False
    return job.unique_holds or job.state in LIVE


def resolve_conflict(unique: Unique, holder: Job) -> Conflict:
    """Returns what happens to a request whose unique key is held by the job `holder`. A running holder is
    never changed or cancelled."""
    if unique.on_conflict == "skip" or holder.state not in LIVE:
        return Conflict.EXISTING
    if holder.state is State.RUNNING:
        return Conflict.SUCCEED if unique.on_conflict in ("rerun", "replace") else Conflict.EXISTING
    return Conflict.REPLACE if unique.on_conflict == "replace" else Conflict.MERGE
