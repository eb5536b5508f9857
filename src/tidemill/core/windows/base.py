"""The protocol that every window implements, and the store's two clocks."""

from __future__ import annotations

from typing import Protocol, Self

import msgspec

from tidemill.core.limits import Limit

TOLERANCE = 1e-9
"""Below any unit: sums of fractions are not exact."""


LONG_AGO = -1e9
"""A boot time before any boot: units counted then have expired."""


class Instant(msgspec.Struct, frozen=True):
    """A moment on the store's two clocks. `wall` is Unix time. `boot` counts seconds and starts again when
    the machine restarts."""

    wall: float
    boot: float


SEND_SHARE = 0.5
"""The share of the jitter in which a handler must begin and send its request. The rest is for the network:
the first call of a process resolves a name, connects and negotiates TLS before anything arrives."""


class Guards(msgspec.Struct, frozen=True):
    """The safety margins of a pool, in seconds.

    - `jitter`: how late after its claim a call may reach the provider.
    - `midnight`: how far the provider's calendar may differ from ours."""

    jitter: float = 0.5
    midnight: float = 5.0


class Window(Protocol):
    """An immutable window; every change returns a new window. Waits are seconds from now, and infinity means
    never."""

    def counted(self, limit: Limit, now: Instant, guards: Guards) -> float:
        """Returns the units that count as used now. A call may have to wait even if units are left."""
        ...

    def room(self, limit: Limit, now: Instant, guards: Guards) -> float:
        """Returns the units that could be taken now; negative if there is a debt."""
        ...

    def wait(self, limit: Limit, units: float, now: Instant, guards: Guards) -> float:
        """Returns the seconds until `units` could be taken, if no further call is made."""
        ...

    def taken(self, limit: Limit, units: float, now: Instant, guards: Guards) -> tuple[Self, float]:
        """Counts `units` as used, even beyond the limit. Returns the new window, and a mark that tells
        `returned` where the units were counted."""
        ...

    def returned(self, limit: Limit, units: float, mark: float, now: Instant) -> Self:
        """Returns the window after `units` were given back. `mark` tells where they were counted. For a limit
        on concurrency, units are given back when a call ends."""
        ...

    def lost(self, limit: Limit, now: Instant) -> Self:
        """Returns the window after a restart of the machine. A window that needs boot-clock times counts as
        fully used from now on."""
        ...
