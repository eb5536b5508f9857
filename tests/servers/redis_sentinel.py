"""A private Redis with a replica, and sentinels that promote the replica if the primary dies."""

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
            # A busy machine answers late; a short timeout would cause a second failover.
            "sentinel down-after-milliseconds": f"{NAME} 5000",
            "sentinel failover-timeout": f"{NAME} 3000",
        }


class RedisSentinel:
    """The servers. `primary` and `replica` swap in a failover."""

    name = NAME

    def __init__(self, sentinels: int = 1) -> None:
        # The first copy does not wait five seconds for further replicas.
        self.primary = Redis(append_only=True, repl_diskless_sync_delay=0)
        follows = f"{HOST} {self.primary.port}"
        self.replica = Redis(append_only=True, repl_diskless_sync_delay=0, replicaof=follows)
        self.sentinels = [_Sentinel(self.primary, sentinels // 2 + 1) for _ in range(sentinels)]
        self._open = ExitStack()

    def fail_over(self) -> None:
        """Kills the primary and waits until the replica is promoted and every sentinel knows."""
        self.primary.kill()
        self.primary, self.replica = self.replica, self.primary
        wait_until(self._begins, "a sentinel to begin the failover")
        wait_until(lambda: all(map(self._agrees, self.sentinels)), "the sentinels to fail over")

    def come_back(self) -> None:
        """Restarts the killed server as the new replica; the sentinels would take ten seconds to
        reconfigure it."""
        with (self.replica.folder / "redis.conf").open("a", encoding="utf-8") as configured:
            configured.write(f"replicaof {HOST} {self.primary.port}\n")
        self.replica.start()
        wait_until(self._follows, "the replica to follow")

    def _begins(self) -> bool:
        """Requests a failover from the sentinels, which saves the seconds until they notice by themselves."""
        with self.sentinels[0].client() as client:
            try:
                client.execute_command("SENTINEL FAILOVER", NAME)
            except redis.ResponseError as refusal:
                if "NOGOODSLAVE" not in str(refusal):  # it has not checked the replica yet
                    raise
                return False
        return True

    def _agrees(self, sentinel: Redis) -> bool:
        """Returns whether the sentinel has finished. It announces the new address earlier; its state of the
        primary changes last."""
        with sentinel.client() as client:
            return bool(client.execute_command("SENTINEL MASTERS")[NAME]["port"] == self.primary.port)

    def _is_complete(self, sentinel: Redis) -> bool:
        with sentinel.client() as client:
            master = client.execute_command("SENTINEL MASTERS")[NAME]
        others = len(self.sentinels) - 1
        return (master["num-slaves"], master["num-other-sentinels"]) == (1, others) and master["is_master"]

    def _follows(self) -> bool:
        try:
            with self.replica.client() as client:
                replication = client.info("replication")
        except redis.ConnectionError:  # a server that changes its role disconnects all clients
            return False
        return (replication.get("master_port"), replication.get("master_link_status")) == (
            self.primary.port,
            "up",
        )

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            for server in (self.primary, self.replica):
                opening.enter_context(server)
            wait_until(self._follows, "the replica to follow")
            for sentinel in self.sentinels:
                opening.enter_context(sentinel)
            wait_until(lambda: all(map(self._is_complete, self.sentinels)), "the sentinels to look around")
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
