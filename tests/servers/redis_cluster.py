"""A private Redis Cluster: three nodes that share the slots; one that a test will lose gets a replica."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Self

from tests.servers.program import HOST, wait_until
from tests.servers.redis import Redis

SLOTS = 16384


class _Node(Redis):
    def __init__(self) -> None:
        super().__init__(
            append_only=True, cluster_enabled="yes", cluster_node_timeout=1000, repl_diskless_sync_delay=0
        )


class RedisCluster:
    def __init__(self, nodes: int = 3) -> None:
        self.nodes: list[Redis] = [_Node() for _ in range(nodes)]
        self._open = ExitStack()

    @property
    def url(self) -> str:
        """Any node tells where the others are."""
        return self.nodes[0].url

    def node_of(self, key: str) -> Redis:
        """Who serves the key."""
        with self.nodes[0].client() as client:
            slot = client.execute_command("CLUSTER KEYSLOT", key)
            for first, last, (_, port, *_), *_ in client.execute_command("CLUSTER SLOTS"):
                if first <= slot <= last:
                    return next(node for node in self.nodes if node.port == port)
        raise LookupError(f"nobody serves slot {slot}")

    def move(self, key: str, to: Redis) -> None:
        """Give the key's slot to another node, with everything in it, as an operator who rebalances does."""
        giver = self.node_of(key)
        with giver.client() as gives, to.client() as takes:
            slot = gives.execute_command("CLUSTER KEYSLOT", key)
            names = {client: client.execute_command("CLUSTER MYID") for client in (gives, takes)}
            takes.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", names[gives])
            gives.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", names[takes])
            while keys := gives.execute_command("CLUSTER GETKEYSINSLOT", slot, 100):
                gives.execute_command("MIGRATE", HOST, to.port, "", 0, 5000, "KEYS", *keys)
            for client in (takes, gives):
                client.execute_command("CLUSTER SETSLOT", slot, "NODE", names[takes])

    def add_replica(self, node: Redis) -> Redis:
        """One that takes the node's part when it is gone, as the others see to."""
        replica = self._open.enter_context(_Node())
        with node.client() as follows, replica.client() as client:
            name = follows.execute_command("CLUSTER MYID")
            client.execute_command("CLUSTER MEET", HOST, node.port)
            self.nodes.append(replica)
            wait_until(lambda: all(map(self._sees_everybody, self.nodes)), "the replica to be met")
            client.execute_command("CLUSTER REPLICATE", name)
            wait_until(lambda: client.info("replication").get("master_link_status") == "up", "it to follow")
        return replica

    def _join(self) -> None:
        for number, node in enumerate(self.nodes):
            with node.client() as client:
                client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
                client.execute_command("CLUSTER ADDSLOTS", *range(number, SLOTS, len(self.nodes)))
                client.execute_command("CLUSTER MEET", HOST, self.nodes[0].port)
        wait_until(lambda: all(map(self._sees_everybody, self.nodes)), "the nodes of the cluster to meet")

    def _sees_everybody(self, node: Redis) -> bool:
        with node.client() as client:
            told = client.execute_command("CLUSTER INFO")
            nodes = client.execute_command("CLUSTER NODES")
        return told["cluster_state"] == "ok" and len(nodes) == len(self.nodes)

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            for node in self.nodes:
                opening.enter_context(node)
            self._join()
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
