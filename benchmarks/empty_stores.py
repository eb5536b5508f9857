"""An empty store for every measurement: a folder, a private Redis, or a new PostgreSQL database.

The servers run with their default durability: Redis takes snapshots and has no AOF, PostgreSQL flushes
every commit."""

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
class EmptyStore:
    """An empty store: `url` for the client, and `pid` of the server if there is one."""

    store: str
    url: str
    pid: int | None = None

    def bytes_used(self) -> int:
        return STATISTICS[self.store].bytes_used(self.url)

    def asked(self) -> dict[str, int]:
        """Returns the number of requests that the server has received, by kind."""
        return STATISTICS[self.store].asked(self.url)


class StoreStatistics(ABC):
    @abstractmethod
    def bytes_used(self, url: str) -> int: ...

    @abstractmethod
    def asked(self, url: str) -> dict[str, int]: ...


class FolderStatistics(StoreStatistics):
    def bytes_used(self, url: str) -> int:
        return sum(file.stat().st_size for file in Path(url).iterdir())

    def asked(self, url: str) -> dict[str, int]:  # noqa: ARG002 - a file has no counters
        return {}


class RedisStatistics(StoreStatistics):
    def bytes_used(self, url: str) -> int:
        """Returns the used memory without client buffers, which depend on the number of connections."""
        said = _info(url, "memory")
        return int(said["used_memory"]) - int(said.get("mem_clients_normal", 0))

    def asked(self, url: str) -> dict[str, int]:
        """Returns the number of socket reads and of commands; commands inside a script count separately."""
        said = _info(url, "stats")
        return {
            "asked": int(said["total_reads_processed"]),
            "commands": int(said["total_commands_processed"]),
        }


def _info(url: str, section: str) -> dict[str, int]:
    with redis.Redis.from_url(url) as client:
        said: dict[str, int] = client.info(section)
        return said


class PostgresStatistics(StoreStatistics):
    def bytes_used(self, url: str) -> int:
        return self._one(url, "SELECT pg_database_size(current_database())")

    def asked(self, url: str) -> dict[str, int]:
        """Returns the number of transactions; a single statement is one transaction."""
        counted = "xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
        return {"asked": self._one(url, f"SELECT {counted}")}

    def _one(self, url: str, question: str) -> int:
        with psycopg.connect(url, autocommit=True) as connection:
            row = connection.execute(question.encode()).fetchone()
            return int(row[0]) if row else 0


STATISTICS: dict[str, StoreStatistics] = {
    "sqlite": FolderStatistics(),
    "redis": RedisStatistics(),
    "postgres": PostgresStatistics(),
}


class StoreFactory(ABC):
    """Creates the empty stores of one run. Shared servers start once."""

    @abstractmethod
    def empty(self) -> AbstractContextManager[EmptyStore]: ...

    @abstractmethod
    def described(self) -> dict[str, str]:
        """Returns the store's versions and settings for the report."""
        ...


class FolderFactory(StoreFactory):
    def __init__(self, disk: str | None) -> None:
        self._disk = disk

    @contextmanager
    def empty(self) -> Iterator[EmptyStore]:
        with tempfile.TemporaryDirectory(prefix="tidemill-bench-", dir=self._disk) as folder:
            yield EmptyStore("sqlite", folder)

    def described(self) -> dict[str, str]:
        import apsw

        own = f"{apsw.sqlite_lib_version()}, every commit flushed (Tidemill)"
        return {"SQLite": f"{own}, the standard library's (peers)"}


class RedisFactory(StoreFactory):
    @contextmanager
    def empty(self) -> Iterator[EmptyStore]:
        with Redis(save=SNAPSHOTS) as server:
            yield EmptyStore("redis", server.url, server.pid)

    def described(self) -> dict[str, str]:
        with self.empty() as place, redis.Redis.from_url(place.url) as client:
            said = client.info("server")
        name = said.get("server_name", "redis")
        version = said.get(f"{name}_version", said["redis_version"])
        return {"Redis": f"{name} {version}, its defaults: snapshots ({SNAPSHOTS}), no append-only file"}


class DatabaseFactory(StoreFactory):
    """One server per run, one database per measurement."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._made = 0

    @contextmanager
    def empty(self) -> Iterator[EmptyStore]:
        self._made += 1
        name = f"bench_{self._made}"
        with self._server.client() as client:
            # Flushes the writes of the previous measurement, so that the next one does not pay for them.
            client.execute("CHECKPOINT")
            client.execute(f"CREATE DATABASE {name}".encode())
        yield EmptyStore("postgres", self._server.url_of(name), self._server.pid)
        with self._server.client() as client:
            client.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())

    def described(self) -> dict[str, str]:
        with self._server.client() as client:
            row = client.execute("SELECT current_setting('server_version')").fetchone()
        version = row[0] if row else "unknown"
        return {"PostgreSQL": f"{version}, its defaults: fsync and synchronous_commit on, 128 MB of buffers"}


@contextmanager
def create_factory(store: str, disk: str | None) -> Iterator[StoreFactory]:
    """Creates the factory of a store kind. Redis starts per measurement, because that is faster than
    emptying it; PostgreSQL takes a second to start."""
    simple: dict[str, Callable[[], StoreFactory]] = {
        "sqlite": lambda: FolderFactory(disk),
        "redis": RedisFactory,
    }
    if store in simple:
        yield simple[store]()
        return
    with Postgres(durable=True, shared_buffers="128MB") as server:
        yield DatabaseFactory(server)
