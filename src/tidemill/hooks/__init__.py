"""Hooks in HTTP clients: what `Pool.watch(client)` adds to a client.

A hook sees every request that a client sends inside a handler, also those that an SDK sends by itself when
it tries again. It tells the running attempt when the request leaves, and what the answer says: status,
rate-limit headers, usage. The attempt is found by a context variable, so a client may be shared by all
handlers of a worker. Outside of an attempt a hook does nothing.

`clients` finds the HTTP client inside an SDK's client. `httpx_hooks`, `aiohttp_hooks` and `requests_hooks`
add the hooks. `bodies` reads the usage of a body while it streams by. No client library is imported here
before the program has imported it.
"""

from __future__ import annotations

from tidemill.hooks.clients import watch

__all__ = ["watch"]
