"""Sends, cancels and retries flows over the same unreliable network as the workers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.simulation.flows.handlers import FlowHandlers
from tests.simulation.flows.random_flows import draw_flow
from tests.simulation.network import Network
from tests.simulation.trace import Trace
from tidemill.core.documents import Document
from tidemill.core.flow_graph import FlowGraph
from tidemill.errors import FlowNotFound, StoreUnavailable
from tidemill.flows import cancel_and_retry
from tidemill.flows.advance import make_first_advance


@dataclass
class FlowOperator:
    network: Network
    handlers: FlowHandlers
    trace: Trace
    chance: random.Random
    accepted: set[str] = field(default_factory=set)

    async def run(self, flows: int, seconds: float) -> None:
        tasks = self.handlers.tasks("composer", knows_rare=True)
        for number in range(flows):
            await asyncio.sleep(self.chance.uniform(0, seconds / flows))
            flow, graph = f"flow/{number}", draw_flow(self.chance)
            self.handlers.graphs[flow] = graph
            await self._begin(tasks, flow, graph)
            if self.chance.random() < 0.3:
                await self._change_something(flow)

    async def retry_failed(self) -> None:
        """Retries every failed flow."""
        for flow in sorted(self.accepted):
            await self._retry_until_answered(
                partial(cancel_and_retry.retry_flow, self.network, flow, self._tell)
            )

    def _tell(self, before: Document, after: Document) -> None:
        self.trace.add("composer", f"made {after.id} {after.state}, which was {before.state}")

    async def _begin(self, tasks: Any, flow: str, graph: FlowGraph) -> None:
        advance = await make_first_advance(self.network, tasks, flow, "flow", graph)
        await self._retry_until_answered(lambda: self.network.advance([advance]))
        self.accepted.add(flow)
        self.trace.add("composer", f"sent {flow}: {[(n.name, sorted(n.parents)) for n in graph.nodes]}")

    async def _change_something(self, flow: str) -> None:
        await asyncio.sleep(self.chance.uniform(0, 3))
        self.trace.add("composer", f"cancels {flow}")
        await self._retry_until_answered(
            lambda: cancel_and_retry.cancel_flow(self.network, flow, "enough", self._tell)
        )
        if self.chance.random() < 0.7:
            self.trace.add("composer", f"retries {flow}")
            await self._retry_until_answered(
                lambda: cancel_and_retry.retry_flow(self.network, flow, self._tell)
            )

    async def _retry_until_answered(self, do: Callable[[], Awaitable[Any]]) -> None:
        while True:
            try:
                await do()
            except StoreUnavailable:
                await asyncio.sleep(0.2)
            except FlowNotFound:
                return
            else:
                return
