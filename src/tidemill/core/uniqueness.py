"""One live job per queue and unique key, and what a second request for it does."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from tidemill.core.names import problem_with_name
from tidemill.core.numbers import is_number
from tidemill.core.states import LIVE, State
from tidemill.times import in_seconds

if TYPE_CHECKING:
    from tidemill.core.job import Job

OnConflict = Literal["skip", "replace", "merge", "rerun"]
_CHOICES = get_args(OnConflict)


class Unique(msgspec.Struct, frozen=True):
    """A key that at most one live job of a queue may hold.

    `period` keeps the key for that many seconds, whether or not the job has ended.
    `at_most` lets it go when the job ends, and after that many seconds at the latest.
    With neither, the key ends with its job.
    """

    key: str
    on_conflict: OnConflict = "skip"
    period: float | timedelta | None = None
    at_most: float | timedelta | None = None

    @property
    def lasts(self) -> float | None:
        """After how many seconds the key is free in any case; None when only an end frees it."""
        given = self.at_most if self.period is None else self.period
        return None if given is None else in_seconds(given)

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
            if value is not None and not (is_number(in_seconds(value), 0) and value):
                return f"unique.{field}: must be a number of seconds or a timedelta above 0, is {value!r}"
        return None


class Conflict(StrEnum):
    """What a store does with a request whose key is held."""

    EXISTING = "existing"  # answer the holder, change nothing
    MERGE = "merge"  # fold the request into the holder
    REPLACE = "replace"  # cancel the holder, insert the request
    SUCCEED = "succeed"  # insert the request, waiting for the holder's run to end


def holds_key(job: Job, now: float) -> bool:
    if job.unique_key is None:
        return False
    if job.unique_until is not None and now >= job.unique_until:
        return False
    return job.unique_holds or job.state in LIVE


def resolve(unique: Unique, holder: Job) -> Conflict:
    """A running holder is never changed under its handler's feet."""
    if unique.on_conflict == "skip" or holder.state not in LIVE:
        return Conflict.EXISTING
    if holder.state is State.RUNNING:
        return Conflict.SUCCEED if unique.on_conflict in ("rerun", "replace") else Conflict.EXISTING
    return Conflict.REPLACE if unique.on_conflict == "replace" else Conflict.MERGE
