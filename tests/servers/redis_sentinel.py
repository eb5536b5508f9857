"""A private Redis with a replica, and sentinels that make the replica the primary when the first is gone."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Self

import redis

from tests.servers.program import HOST, wait_until
from tests.servers.redis import Redis

NAME = "main"


class _Sentinel(Redis):
    _words = ("--sentinel",)

    def __init__(self, primary: Redis, quorum: int) -> None:
        super().__init__()
        self._settings = {
            **{name: self._settings[name] for name in ("port", "bind", "dir")},
            "sentinel monitor": f"{NAME} {HOST} {primary.port} {quorum}",
            # A busy machine answers late; what looks dead too soon is failed over once more.
            "sentinel down-after-milliseconds": f"{NAME} 5000",
            "sentinel failover-timeout": f"{NAME} 3000",
        }


class RedisSentinel:
    """`primary` and `replica` change their parts in a failover."""

    name = NAME

    def __init__(self, sentinels: int = 1) -> None:
        # The first copy does not wait for further replicas, which would be five seconds.
        self.primary = Redis(append_only=True, repl_diskless_sync_delay=0)
        follows = f"{HOST} {self.primary.port}"
        self.replica = Redis(append_only=True, repl_diskless_sync_delay=0, replicaof=follows)
        self.sentinels = [_Sentinel(self.primary, sentinels // 2 + 1) for _ in range(sentinels)]
        self._open = ExitStack()

    def fail_over(self) -> None:
        """Kill the primary and wait until the replica has its part and every sentinel knows."""
        self.primary.kill()
        self.primary, self.replica = self.replica, self.primary
        wait_until(self._begins, "a sentinel to begin the failover")
        wait_until(lambda: all(map(self._agrees, self.sentinels)), "the sentinels to fail over")

    def come_back(self) -> None:
        """Start what was killed as the replica it is now; the sentinels would take ten seconds to tell it."""
        with (self.replica.folder / "redis.conf").open("a", encoding="utf-8") as configured:
            configured.write(f"replicaof {HOST} {self.primary.port}\n")
        self.replica.start()
        wait_until(self._follows, "the replica to follow")

    def _begins(self) -> bool:
        """They would notice by themselves; being told saves the seconds until then."""
        with self.sentinels[0].client() as client:
            try:
                client.execute_command("SENTINEL FAILOVER", NAME)
            except redis.ResponseError as refusal:
                if "NOGOODSLAVE" not in str(refusal):  # it has not yet looked at the replica
                    raise
                return False
        return True

    def _agrees(self, sentinel: Redis) -> bool:
        """It tells the new address before it is done; what it says of the primary changes last."""
        with sentinel.client() as client:
            return bool(client.execute_command("SENTINEL MASTERS")[NAME]["port"] == self.primary.port)

    def _knows_everybody(self, sentinel: Redis) -> bool:
        with sentinel.client() as client:
            told = client.execute_command("SENTINEL MASTERS")[NAME]
        others = len(self.sentinels) - 1
        return (told["num-slaves"], told["num-other-sentinels"]) == (1, others) and told["is_master"]

    def _follows(self) -> bool:
        try:
            with self.replica.client() as client:
                told = client.info("replication")
        except redis.ConnectionError:  # whose part changes sends everybody away
            return False
        return (told.get("master_port"), told.get("master_link_status")) == (self.primary.port, "up")

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            for server in (self.primary, self.replica):
                opening.enter_context(server)
            wait_until(self._follows, "the replica to follow")
            for sentinel in self.sentinels:
                opening.enter_context(sentinel)
            wait_until(
                lambda: all(map(self._knows_everybody, self.sentinels)), "the sentinels to look around"
            )
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
