"""HTTP client hooks that `Pool.watch(client)` installs.

A hook sees every request that a client sends inside a handler, including the retries of an SDK. It reports
each request, and the status, rate-limit headers and usage of its answer, to the running attempt. All handlers
of a worker can share one client.

`clients` finds the HTTP client inside an SDK's client. `httpx_hooks`, `aiohttp_hooks` and `requests_hooks`
contain the hooks. `watched_call` reads usage from a body while it streams."""

from __future__ import annotations

from tidemill.hooks.clients import watch

__all__ = ["watch"]
