"""An empty store for every measurement: a folder, a Redis of its own, a database of its own.

The servers are private and run as they come: Redis with its default of a snapshot now and then and no log of
commands, PostgreSQL flushing every commit.
"""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import redis
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis

SNAPSHOTS = "3600 1 300 100 60 10000"


@dataclass(frozen=True)
class Place:
    """Where a queue may put its jobs: `url` for its client, `pid` of the server if there is one."""

    store: str
    url: str
    pid: int | None = None

    def bytes_used(self) -> int:
        return FACTS[self.store].bytes_used(self.url)

    def asked(self) -> dict[str, int]:
        """How often the server was asked so far."""
        return FACTS[self.store].asked(self.url)


class Facts(ABC):
    @abstractmethod
    def bytes_used(self, url: str) -> int: ...

    @abstractmethod
    def asked(self, url: str) -> dict[str, int]: ...


class FolderFacts(Facts):
    def bytes_used(self, url: str) -> int:
        return sum(file.stat().st_size for file in Path(url).iterdir())

    def asked(self, url: str) -> dict[str, int]:  # noqa: ARG002 - a file counts nothing
        return {}


class RedisFacts(Facts):
    def bytes_used(self, url: str) -> int:
        """Without the buffers of whoever is connected: they come and go with the clients."""
        said = _info(url, "memory")
        return int(said["used_memory"]) - int(said.get("mem_clients_normal", 0))

    def asked(self, url: str) -> dict[str, int]:
        """Redis counts what clients send, and every command, those inside a script one by one."""
        said = _info(url, "stats")
        return {
            "asked": int(said["total_reads_processed"]),
            "commands": int(said["total_commands_processed"]),
        }


def _info(url: str, section: str) -> dict[str, int]:
    with redis.Redis.from_url(url) as client:
        said: dict[str, int] = client.info(section)
        return said


class PostgresFacts(Facts):
    def bytes_used(self, url: str) -> int:
        return self._one(url, "SELECT pg_database_size(current_database())")

    def asked(self, url: str) -> dict[str, int]:
        """Transactions; a lone statement is one."""
        counted = "xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
        return {"asked": self._one(url, f"SELECT {counted}")}

    def _one(self, url: str, question: str) -> int:
        with psycopg.connect(url, autocommit=True) as connection:
            row = connection.execute(question.encode()).fetchone()
            return int(row[0]) if row else 0


FACTS: dict[str, Facts] = {"sqlite": FolderFacts(), "redis": RedisFacts(), "postgres": PostgresFacts()}


class Places(ABC):
    """Where the places of one run come from; what they have in common is started once."""

    @abstractmethod
    def empty(self) -> AbstractContextManager[Place]: ...

    @abstractmethod
    def described(self) -> dict[str, str]:
        """What the report says about it."""
        ...


class Folders(Places):
    def __init__(self, disk: str | None) -> None:
        self._disk = disk

    @contextmanager
    def empty(self) -> Iterator[Place]:
        with tempfile.TemporaryDirectory(prefix="tidemill-bench-", dir=self._disk) as folder:
            yield Place("sqlite", folder)

    def described(self) -> dict[str, str]:
        import apsw

        own = f"{apsw.sqlite_lib_version()}, every commit flushed (Tidemill)"
        return {"SQLite": f"{own}, the standard library's (peers)"}


class Redises(Places):
    @contextmanager
    def empty(self) -> Iterator[Place]:
        with Redis(save=SNAPSHOTS) as server:
            yield Place("redis", server.url, server.pid)

    def described(self) -> dict[str, str]:
        with self.empty() as place, redis.Redis.from_url(place.url) as client:
            said = client.info("server")
        name = said.get("server_name", "redis")
        version = said.get(f"{name}_version", said["redis_version"])
        return {"Redis": f"{name} {version}, its defaults: snapshots ({SNAPSHOTS}), no append-only file"}


class Databases(Places):
    """One server for the run; a database for each measurement."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._made = 0

    @contextmanager
    def empty(self) -> Iterator[Place]:
        self._made += 1
        name = f"bench_{self._made}"
        with self._server.client() as client:
            client.execute("CHECKPOINT")  # nobody pays for what the one before wrote
            client.execute(f"CREATE DATABASE {name}".encode())
        yield Place("postgres", self._server.url_of(name), self._server.pid)
        with self._server.client() as client:
            client.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())

    def described(self) -> dict[str, str]:
        with self._server.client() as client:
            row = client.execute("SELECT current_setting('server_version')").fetchone()
        version = row[0] if row else "unknown"
        return {"PostgreSQL": f"{version}, its defaults: fsync and synchronous_commit on, 128 MB of buffers"}


@contextmanager
def places(store: str, disk: str | None) -> Iterator[Places]:
    """A Redis starts faster than it could be emptied; PostgreSQL takes a second."""
    simple: dict[str, Callable[[], Places]] = {"sqlite": lambda: Folders(disk), "redis": Redises}
    if store in simple:
        yield simple[store]()
        return
    with Postgres(durable=True, shared_buffers="128MB") as server:
        yield Databases(server)
