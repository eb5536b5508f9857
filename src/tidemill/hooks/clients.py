"""Finds the HTTP client inside the client that a program has, and adds the hooks of a pool to it.

A client is recognised by the name of its class and never by import, so a library that the program does not
use is not needed here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tidemill.errors import ConfigurationError
from tidemill.hooks.httpx_hooks import AsyncHttpxHooks, HttpxHooks

C = TypeVar("C")


def watch(pool: Any, client: C) -> C:
    """Adds the hooks once, however often it is called with the same pool and client."""
    add = _way(client)
    if add is None:
        raise ConfigurationError(
            f"watch: {type(client).__module__}.{type(client).__qualname__} is no client that can be watched; "
            "give one of openai, anthropic, google-genai, httpx, httpx2, aiohttp or requests, or the HTTP "
            "client that yours was made with"
        )
    add(pool, client)
    return client


def _way(client: Any) -> Callable[[Any, Any], None] | None:
    names = {f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}" for kind in type(client).__mro__}
    for library in ("httpx", "httpx2"):
        if names & {f"{library}.Client", f"{library}.AsyncClient"}:
            return _watch_httpx
    if "aiohttp.ClientSession" in names:
        return _watch_aiohttp
    if "requests.Session" in names:
        return _watch_requests
    if hasattr(getattr(client, "_client", None), "event_hooks"):
        return lambda pool, sdk: _watch_httpx(pool, sdk._client)  # noqa: SLF001 - openai and anthropic
    if hasattr(getattr(client, "_api_client", None), "_httpx_client"):
        return _watch_genai
    return None


def _watch_httpx(pool: Any, client: Any) -> None:
    names = {kind.__qualname__ for kind in type(client).__mro__}
    hooks = client.event_hooks
    if any(_is_of(hook, pool) for hook in hooks["request"]):
        return
    own = AsyncHttpxHooks(pool) if "AsyncClient" in names else HttpxHooks(pool)
    # The body is covered by the first hook: the program's own hooks may read it.
    client.event_hooks = {
        "request": [*hooks["request"], own.request],
        "response": [own.response, *hooks["response"]],
    }


def _is_of(hook: Any, pool: Any) -> bool:
    owner = getattr(hook, "__self__", None)
    return isinstance(owner, HttpxHooks) and owner.pool is pool


def _watch_aiohttp(pool: Any, session: Any) -> None:
    from tidemill.hooks.aiohttp_hooks import PoolTrace

    traces = session.trace_configs
    if not any(isinstance(trace, PoolTrace) and trace.pool is pool for trace in traces):
        trace = PoolTrace(pool)
        trace.freeze()
        traces.append(trace)


def _watch_requests(pool: Any, session: Any) -> None:
    from tidemill.hooks.requests_hooks import ResponseHook

    hooks = session.hooks["response"]
    if not any(isinstance(hook, ResponseHook) and hook.pool is pool for hook in hooks):
        hooks.insert(0, ResponseHook(pool))


def _watch_genai(pool: Any, client: Any) -> None:
    """google-genai calls by httpx, or in async code by aiohttp where that is installed, with a session for
    each event loop, which it opens with the first call."""
    api = client._api_client  # noqa: SLF001 - it offers its HTTP clients nowhere else
    for http_client in (api._httpx_client, api._async_httpx_client):  # noqa: SLF001
        if http_client is not None:
            _watch_httpx(pool, http_client)
    open_session = getattr(api, "_get_aiohttp_session", None)
    if open_session is None or getattr(open_session, "tidemill_pool", None) is pool:
        return

    async def opened() -> Any:
        session = await open_session()
        if _way(session) is _watch_aiohttp:
            _watch_aiohttp(pool, session)
        return session

    opened.tidemill_pool = pool  # type: ignore[attr-defined]
    api._get_aiohttp_session = opened  # noqa: SLF001
