"""Every store in virtual time. Each factory call returns a new, empty store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

from tests.quotas.fleet import MakeStore, in_memory
from tidemill.clock import Clock, Entropy
from tidemill.contract.store import Store

STORES = ["memory", "sqlite", "redis", "postgres"]
PERSISTENT = STORES[1:]


@contextmanager
def create_store(name: str, folder: Path, url_of: Callable[[str], str]) -> Iterator[MakeStore]:
    """Yields the factory of one of STORES; `url_of` returns the address of a server."""
    if name == "memory":
        yield in_memory
    elif name == "sqlite":
        yield create_sqlite(folder)
    else:
        with create_redis(url_of(name)) if name == "redis" else create_postgres(url_of(name)) as make:
            yield make


def create_sqlite(folder: Path) -> MakeStore:
    from tests.quotas.virtual_sqlite import VirtualSqliteStore

    numbers = count(1)

    def make(clock: Clock, entropy: Entropy) -> Store:
        return VirtualSqliteStore(folder / f"jobs-{next(numbers)}.db", clock=clock, entropy=entropy)

    return make


@contextmanager
def create_redis(url: str) -> Iterator[MakeStore]:
    from tests.quotas.virtual_redis import VirtualRedisStore, WakeupChannels

    numbers = count(1)
    with ExitStack() as closing:

        def make(clock: Clock, entropy: Entropy) -> Store:
            prefix = f"tidemill-{next(numbers)}"
            bells = WakeupChannels(url, prefix)
            closing.callback(bells.close)
            return VirtualRedisStore(bells, url, prefix, clock, entropy)

        yield make


@contextmanager
def create_postgres(url: str) -> Iterator[MakeStore]:
    from tests.quotas.virtual_postgres import LoopThread, VirtualPostgresStore
    from tidemill.stores.memory.wakeups import MemoryListenerHub

    numbers, elsewhere = count(1), LoopThread()
    try:
        yield lambda clock, entropy: VirtualPostgresStore(
            elsewhere,
            MemoryListenerHub(),
            url,
            schema=f"tidemill_{next(numbers)}",
            clock=clock,
            entropy=entropy,
        )
    finally:
        elsewhere.close()
