"""The keys that a test left in Redis: none may be outside its prefix."""

from __future__ import annotations

from tests.servers.redis import Redis

DEFAULT_PREFIX = "tidemill"


class RedisKeys:
    def __init__(self, server: Redis) -> None:
        self._server = server
        self.prefix = DEFAULT_PREFIX

    def left_over(self, prefix: str | None = None) -> list[str]:
        """Returns the keys under the prefix, for a test that deletes everything and expects none."""
        under = self.prefix if prefix is None else prefix
        return [key for key in self._every_key() if _belongs(key, under)]

    def strays(self) -> list[str]:
        return [key for key in self._every_key() if not _belongs(key, self.prefix)]

    def clear(self) -> None:
        with self._server.client() as client:
            client.flushall()

    def _every_key(self) -> list[str]:
        """Returns the keys of every numbered database: a key in the wrong one is an error too."""
        found: list[str] = []
        with self._server.client() as client:
            for database in client.info("keyspace"):
                client.select(int(database.removeprefix("db")))
                found += client.scan_iter(count=1000)
        return sorted(found)


def _belongs(key: str, prefix: str) -> bool:
    """Returns whether the key has the prefix; a hash tag may come before it."""
    return key.removeprefix("{").startswith(prefix)
