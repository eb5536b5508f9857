"""Finds the HTTP client inside an SDK's client and adds the hooks of a pool to it.

A client is recognised by its class name, so a program needs only the client libraries that it uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tidemill.errors import ConfigurationError
from tidemill.hooks.httpx_hooks import AsyncHttpxHooks, HttpxHooks

ClientT = TypeVar("ClientT")


def watch(pool: Any, client: ClientT) -> ClientT:
    """Adds the hooks of a pool to a client and returns the client. A second call with the same pool does
    nothing.

    Raises ConfigurationError if the client is of an unknown kind, or if it already reports to another
    pool."""
    add = _find_hook_installer(client)
    if add is None:
        raise ConfigurationError(
            f"watch: {type(client).__module__}.{type(client).__qualname__} is no client that can be watched; "
            "give one of openai, anthropic, google-genai, httpx, httpx2, aiohttp or requests, or the HTTP "
            "client that yours was made with"
        )
    add(pool, client)
    return client


def _find_hook_installer(client: Any) -> Callable[[Any, Any], None] | None:
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
    owners = [getattr(hook, "__self__", None) for hook in hooks["request"]]
    if _reports_to(pool, [owner.pool for owner in owners if isinstance(owner, HttpxHooks)]):
        return
    own = AsyncHttpxHooks(pool) if "AsyncClient" in names else HttpxHooks(pool)
    # First in the list: hooks of the program may read the body, so it must be wrapped before.
    client.event_hooks = {
        "request": [*hooks["request"], own.request],
        "response": [own.response, *hooks["response"]],
    }


def _reports_to(pool: Any, watching: Sequence[Any]) -> bool:
    """True if the client already has the hooks of `pool`. `watching`: the pools whose hooks the client has.
    Raises ConfigurationError if another pool is among them."""
    for other in watching:
        if other is not pool:
            raise ConfigurationError(
                f"watch: this client reports to pool {other.name!r} already; make one client for each pool"
            )
    return bool(watching)


def _watch_aiohttp(pool: Any, session: Any) -> None:
    from tidemill.hooks.aiohttp_hooks import AiohttpTrace

    traces = session.trace_configs
    if not _reports_to(pool, [trace.pool for trace in traces if isinstance(trace, AiohttpTrace)]):
        trace = AiohttpTrace(pool)
        trace.freeze()
        traces.append(trace)


def _watch_requests(pool: Any, session: Any) -> None:
    from tidemill.hooks.requests_hooks import RequestsHook

    hooks = session.hooks["response"]
    if not _reports_to(pool, [hook.pool for hook in hooks if isinstance(hook, RequestsHook)]):
        hooks.insert(0, RequestsHook(pool))


def _watch_genai(pool: Any, client: Any) -> None:
    """Adds the hooks to a google-genai client. Its requests go through httpx; async requests go through
    aiohttp if that is installed."""
    api = client._api_client  # noqa: SLF001 - there is no public access to its HTTP clients
    open_session = getattr(api, "_get_aiohttp_session", None)
    opens_watched = _reports_to(pool, getattr(open_session, "tidemill_pools", ()))
    for http_client in (api._httpx_client, api._async_httpx_client):  # noqa: SLF001
        if http_client is not None:
            _watch_httpx(pool, http_client)
    if open_session is None or opens_watched:
        return

    async def opened() -> Any:
        session = await open_session()
        if _find_hook_installer(session) is _watch_aiohttp:
            _watch_aiohttp(pool, session)
        return session

    opened.tidemill_pools = (pool,)  # type: ignore[attr-defined]
    api._get_aiohttp_session = opened  # noqa: SLF001
