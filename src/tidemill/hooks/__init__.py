"""HTTP client hooks that `Pool.watch(client)` installs.

A hook sees every request that a client sends inside a handler, including the retries of an SDK. It reports to
the running attempt when a request is sent. It also reports the status, rate-limit headers and usage of the
answer. A context variable identifies the attempt, so all handlers of a worker can share one client. Outside
of an attempt a hook does nothing.

`clients` finds the HTTP client inside an SDK's client. `httpx_hooks`, `aiohttp_hooks` and `requests_hooks`
contain the hooks. `watched_call` reads usage from a body while it streams. A client library is imported only
if the program has imported it before."""

from __future__ import annotations

from tidemill.hooks.clients import watch

__all__ = ["watch"]
