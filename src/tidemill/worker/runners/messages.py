"""What a worker and its isolated processes say to each other. Data only: nothing is unpickled."""

from __future__ import annotations

import msgspec

from tidemill.core.claims import Claimed
from tidemill.core.outcomes import Outcome


class Place(msgspec.Struct, frozen=True):
    """Where a handler is found by import."""

    module: str
    qualname: str


class Prepare(msgspec.Struct, frozen=True, tag="prepare"):
    """Import the handler. Its answer starts the clock: imports do not count against the timeout."""

    place: Place


class Run(msgspec.Struct, frozen=True, kw_only=True, tag="run"):
    """`chance` is the worker's random number for the retry's jitter. `policy` is the task's retry
    policy without its matchers, for a plain function whose definition only the worker knows."""

    place: Place
    job: Claimed
    chance: float
    policy: dict[str, int | float | str]


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The handler was found, or why not."""

    problem: str | None = None


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    outcome: Outcome


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    fraction: float
    note: str | None


class Line(msgspec.Struct, frozen=True, tag="line"):
    line: str


ToChild = Prepare | Run
FromChild = Ready | Ended | Progress | Line

_ENCODER = msgspec.msgpack.Encoder()
_TO_CHILD = msgspec.msgpack.Decoder(ToChild)
_FROM_CHILD = msgspec.msgpack.Decoder(FromChild)

encode = _ENCODER.encode
for_child = _TO_CHILD.decode
from_child = _FROM_CHILD.decode
