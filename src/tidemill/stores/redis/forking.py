"""No connection crosses a fork, and none outlives its event loop unnoticed.

Parent and child would read each other's replies. So a child closes its copies of the sockets, without a
word to the server or to the loop, which are the parent's; what it needs it connects to anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any, Protocol
from weakref import WeakSet


class Forkable(Protocol):
    def abandon(self) -> None: ...


_open: WeakSet[Forkable] = WeakSet()


def close_in_forks(connection: Forkable) -> None:
    _open.add(connection)


def close_silently(transport: asyncio.BaseTransport) -> None:
    """Close a socket whose loop is closed or another process's. A transport has no public way for it: it
    asks its loop to, which refuses; uvloop closes what it owns when it is closed itself."""
    hidden: Any = transport
    layered = getattr(hidden, "_ssl_protocol", None)
    if layered is not None:
        hidden._closed = True  # noqa: SLF001 - see above
        hidden = layered._transport  # noqa: SLF001
    plain = getattr(hidden, "_sock", None)
    if plain is not None:
        plain.close()
        hidden._sock = None  # noqa: SLF001


def _in_child() -> None:
    for connection in list(_open):
        connection.abandon()
    _open.clear()


with contextlib.suppress(AttributeError):  # no forks on this system
    os.register_at_fork(after_in_child=_in_child)
