"""A private Redis Cluster: three nodes that share the slots. A node that a test kills gets a replica."""

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
        """The URL of one node, which knows the addresses of the others."""
        return self.nodes[0].url

    def node_of(self, key: str) -> Redis:
        """Returns the node that serves the key."""
        with self.nodes[0].client() as client:
            slot = client.execute_command("CLUSTER KEYSLOT", key)
            for first, last, (_, port, *_), *_ in client.execute_command("CLUSTER SLOTS"):
                if first <= slot <= last:
                    return next(node for node in self.nodes if node.port == port)
        raise LookupError(f"nobody serves slot {slot}")

    def move(self, key: str, to: Redis) -> None:
        """Moves the key's slot with its content to another node, like an operator who rebalances."""
        giver = self.node_of(key)
        with giver.client() as sender, to.client() as receiver:
            slot = sender.execute_command("CLUSTER KEYSLOT", key)
            names = {client: client.execute_command("CLUSTER MYID") for client in (sender, receiver)}
            receiver.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", names[sender])
            sender.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", names[receiver])
            while keys := sender.execute_command("CLUSTER GETKEYSINSLOT", slot, 100):
                sender.execute_command("MIGRATE", HOST, to.port, "", 0, 5000, "KEYS", *keys)
            for client in (receiver, sender):
                client.execute_command("CLUSTER SETSLOT", slot, "NODE", names[receiver])

    def add_replica(self, node: Redis) -> Redis:
        """Adds a replica, which the other nodes promote if the node dies."""
        replica = self._open.enter_context(_Node())
        with node.client() as follows, replica.client() as client:
            name = follows.execute_command("CLUSTER MYID")
            client.execute_command("CLUSTER MEET", HOST, node.port)
            self.nodes.append(replica)
            wait_until(lambda: all(map(self._is_complete, self.nodes)), "the replica to be met")
            client.execute_command("CLUSTER REPLICATE", name)
            wait_until(lambda: client.info("replication").get("master_link_status") == "up", "it to follow")
        return replica

    def _join(self) -> None:
        for number, node in enumerate(self.nodes):
            with node.client() as client:
                client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
                client.execute_command("CLUSTER ADDSLOTS", *range(number, SLOTS, len(self.nodes)))
                client.execute_command("CLUSTER MEET", HOST, self.nodes[0].port)
        wait_until(lambda: all(map(self._is_complete, self.nodes)), "the nodes of the cluster to meet")

    def _is_complete(self, node: Redis) -> bool:
        with node.client() as client:
            info = client.execute_command("CLUSTER INFO")
            nodes = client.execute_command("CLUSTER NODES")
        return info["cluster_state"] == "ok" and len(nodes) == len(self.nodes)

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            for node in self.nodes:
                opening.enter_context(node)
            self._join()
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
