"""Which store a URL means."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidemill.clock import Clock, Entropy, SystemClock
from tidemill.errors import ConfigurationError
from tidemill.urls import StoreUrl

if TYPE_CHECKING:
    from tidemill.contract.store import Store


@contextmanager
def _from_extra(extra: str, package: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise ConfigurationError(
            f"url: a store on this server needs the package {package}; run pip install 'tidemill[{extra}]'"
        ) from error


def _unless_the_systems(clock: Clock) -> Clock | None:
    """A server has a clock of its own, the same for all its clients. Virtual time is the program's."""
    return None if isinstance(clock, SystemClock) else clock


def make_store(url: StoreUrl, clock: Clock, entropy: Entropy) -> Store:
    """Imported here and nowhere else: a program pays for the one store it uses."""
    if url.scheme == "memory":
        from tidemill.stores.memory import MemoryStore

        return MemoryStore(clock=clock, entropy=entropy)
    if url.scheme.startswith("redis"):
        with _from_extra("redis", "hiredis"):
            from tidemill.stores.redis import RedisStore

        return RedisStore(url.server, clock=_unless_the_systems(clock), entropy=entropy)
    if url.scheme.startswith("postgres"):
        with _from_extra("postgres", "asyncpg"):
            from tidemill.stores.postgres import PostgresStore

        return PostgresStore(url.server, clock=_unless_the_systems(clock), entropy=entropy)
    from tidemill.stores.sqlite import SqliteStore

    return SqliteStore(url.path, mode=url.mode, clock=clock, entropy=entropy)
