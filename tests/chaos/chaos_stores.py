"""The stores of the chaos tests: their addresses, and their servers if they have one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers.postgres import Postgres
from tests.servers.redis import Redis
from tests.servers.server import Server

STORES = ["sqlite", "redis", "postgres"]


@dataclass
class ChaosStore:
    url: str
    server: Server | None = None


@contextmanager
def create_store(store: str, folder: Path) -> Iterator[ChaosStore]:
    """Creates a store whose acknowledged writes survive a kill.

    SQLite and PostgreSQL do by default; Redis needs `appendfsync always`. Redis with `everysec` writes
    up to two seconds later. A server that is killed then has lost those writes, and no test can require
    more."""
    if store == "sqlite":
        yield ChaosStore(f"sqlite:///{folder / 'jobs.db'}")
        return
    with Redis(append_only=True) if store == "redis" else Postgres(durable=True) as server:
        yield ChaosStore(server.url, server)
