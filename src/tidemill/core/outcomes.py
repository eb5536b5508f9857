"""How one attempt ended: values a worker decides on and a store applies."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from tidemill.core.job import Error
from tidemill.core.needs import Need


class Done(msgspec.Struct, frozen=True, tag="done"):
    result: bytes | None = None


class Retrying(msgspec.Struct, frozen=True, tag="retry"):
    """Failed, and worth another attempt after `delay`. Charged."""

    delay: float
    error: Error
    priority: int | None = None


class Snooze(msgspec.Struct, frozen=True, tag="snooze"):
    """Not now; come back after `delay`. Not charged."""

    delay: float
    reason: str | None = None


class Fail(msgspec.Struct, frozen=True, tag="fail"):
    """Failed for good: to the dead-letter shelf. Charged."""

    error: Error
    reason: str = "failed"


class Cancelled(msgspec.Struct, frozen=True, tag="cancelled"):
    reason: str


class Split(msgspec.Struct, frozen=True, tag="split"):
    """Sent back, uncharged, to be claimed in a smaller batch: with those of the same `part`, and at once.
    A job that is of no batch is given back as it is."""

    part: str


class Release(msgspec.Struct, frozen=True, tag="release"):
    """Handed back unrun or unfinished, uncharged, in its old place. `excused`: its handler raised an error of
    its own after it had reported a provider's refusal."""

    unknown: bool = False
    excused: bool = False


class Await(msgspec.Struct, frozen=True, tag="await"):
    """Given back, uncharged, in its old place, until its pools have what its handler asked for while it ran:
    the next claim takes `needs` too. A job of a batch is given back as it is."""

    needs: tuple[Need, ...]


class Crashed(msgspec.Struct, frozen=True, tag="crashed"):
    """The isolated process running it alone died under it."""

    error: Error


Outcome = Done | Retrying | Snooze | Fail | Cancelled | Split | Release | Await | Crashed


def never_fits(problem: str) -> Fail:
    """What becomes of a job that waits for more than its pools ever allow."""
    return Fail(Error("ConfigurationError", problem), "needs too much")


class Answer(StrEnum):
    """What a store says to one fenced write."""

    OK = "ok"
    CHARGED = "charged"  # ok, and `Settlement.charged` became of the job
    AGAIN = "again"  # this claim settled the job before
    STALE = "stale"  # the claim is no longer the job's
    GONE = "gone"  # there is no such job
