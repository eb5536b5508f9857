"""Flows of BullMQ on Node: trees of jobs, children first."""

from __future__ import annotations

from benchmarks.adapters.redis.bullmq_node import NodeAdapter


class BullMQFlows(NodeAdapter):
    script = "flows.mjs"
    settings = (
        "Node, ioredis; concurrency=100, removeOnComplete; FlowProducer, chains by addBulk; a tree is fixed"
        " when it is added and no child has two parents: the first job of a fan-out adds the tree of the rest"
    )
    acknowledges = (
        "removes a job after it ran, its result kept with its parent; a dead worker's jobs run again"
    )

    def send_chains(self, chains: int, steps: int) -> None:
        self.ask("chains", chains=chains, steps=steps)

    def run_chain(self, steps: int) -> int:
        return int(self.ask("chain", steps=steps))

    def run_fan_out(self, width: int) -> int:
        return int(self.ask("fanOut", width=width))
