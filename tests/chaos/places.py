"""The stores that are set on fire: where each lies, and the server that is hurt with it, where it has one."""

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
class Place:
    url: str
    server: Server | None = None


@contextmanager
def place(store: str, folder: Path) -> Iterator[Place]:
    """Set up so that what it acknowledged survives a kill: SQLite as it is, Redis with `appendfsync
    always` and PostgreSQL as it is by default. Redis with `everysec` writes up to two seconds later, and a
    server that is killed then has forgotten them: no test can ask more of it."""
    if store == "sqlite":
        yield Place(f"sqlite:///{folder / 'jobs.db'}")
        return
    with Redis(append_only=True) if store == "redis" else Postgres(durable=True) as server:
        yield Place(server.url, server)
