"""Every store in virtual time. Each call of what makes them makes a new one, with nothing in it."""

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
def made(name: str, folder: Path, url_of: Callable[[str], str]) -> Iterator[MakeStore]:
    """One of STORES; `url_of` says where a server is."""
    if name == "memory":
        yield in_memory
    elif name == "sqlite":
        yield on_sqlite(folder)
    else:
        with on_redis(url_of(name)) if name == "redis" else on_postgres(url_of(name)) as make:
            yield make


def on_sqlite(folder: Path) -> MakeStore:
    from tests.quotas.sqlite_virtually import VirtualSqliteStore

    numbers = count(1)

    def make(clock: Clock, entropy: Entropy) -> Store:
        return VirtualSqliteStore(folder / f"jobs-{next(numbers)}.db", clock=clock, entropy=entropy)

    return make


@contextmanager
def on_redis(url: str) -> Iterator[MakeStore]:
    from tests.quotas.redis_virtually import Bells, VirtualRedisStore

    numbers = count(1)
    with ExitStack() as closing:

        def make(clock: Clock, entropy: Entropy) -> Store:
            prefix = f"tidemill-{next(numbers)}"
            bells = Bells(url, prefix)
            closing.callback(bells.close)
            return VirtualRedisStore(bells, url, prefix, clock, entropy)

        yield make


@contextmanager
def on_postgres(url: str) -> Iterator[MakeStore]:
    from tests.quotas.postgres_virtually import Elsewhere, VirtualPostgresStore
    from tidemill.stores.memory.wakeups import Hub

    numbers, elsewhere = count(1), Elsewhere()
    try:
        yield lambda clock, entropy: VirtualPostgresStore(
            elsewhere, Hub(), url, schema=f"tidemill_{next(numbers)}", clock=clock, entropy=entropy
        )
    finally:
        elsewhere.close()
