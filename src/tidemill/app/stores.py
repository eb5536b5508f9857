"""Creates the store that a URL names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidemill.clock import Clock, Entropy, SystemClock
from tidemill.errors import ConfigurationError
from tidemill.store_url import StoreUrl

if TYPE_CHECKING:
    from tidemill.contract.store import Store


@contextmanager
def _requires_extra(extra: str, package: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise ConfigurationError(
            f"url: a store on this server needs the package {package}; run pip install 'tidemill[{extra}]'"
        ) from error


def _unless_system_clock(clock: Clock) -> Clock | None:
    """Returns None for the system clock, and any other clock unchanged. With None, a server store uses the
    clock of its server."""
    return None if isinstance(clock, SystemClock) else clock


def make_store(url: StoreUrl, clock: Clock, entropy: Entropy) -> Store:
    """Returns a new store for the URL; it is not open yet. Only this function imports the store packages, so
    a program loads only the store that it uses."""
    if url.scheme == "memory":
        from tidemill.stores.memory import MemoryStore

        return MemoryStore(clock=clock, entropy=entropy)
    if url.scheme.startswith("redis"):
        with _requires_extra("redis", "hiredis"):
            from tidemill.stores.redis import RedisStore

        return RedisStore(url.server, clock=_unless_system_clock(clock), entropy=entropy)
    if url.scheme.startswith("postgres"):
        with _requires_extra("postgres", "asyncpg"):
            from tidemill.stores.postgres import PostgresStore

        return PostgresStore(url.server, clock=_unless_system_clock(clock), entropy=entropy)
    from tidemill.stores.sqlite import SqliteStore

    return SqliteStore(url.path, mode=url.mode, clock=clock, entropy=entropy)
