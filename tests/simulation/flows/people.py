"""Who sends flows, and cancels and retries them, over the same bad network as everybody."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.simulation.flows.drawing import draw
from tests.simulation.flows.handlers import FlowHandlers
from tests.simulation.network import Network
from tests.simulation.trace import Trace
from tidemill.core.courses import Course
from tidemill.core.graph import Graph
from tidemill.errors import FlowNotFound, StoreUnavailable
from tidemill.flows import steering
from tidemill.flows.advancing import beginning


@dataclass
class Composer:
    network: Network
    handlers: FlowHandlers
    trace: Trace
    chance: random.Random
    accepted: set[str] = field(default_factory=set)

    async def run(self, flows: int, seconds: float) -> None:
        tasks = self.handlers.tasks("composer", knows_rare=True)
        for number in range(flows):
            await asyncio.sleep(self.chance.uniform(0, seconds / flows))
            flow, graph = f"flow/{number}", draw(self.chance)
            self.handlers.graphs[flow] = graph
            await self._begin(tasks, flow, graph)
            if self.chance.random() < 0.3:
                await self._steer(flow)

    async def take_up(self) -> None:
        """Whatever has failed goes again."""
        for flow in sorted(self.accepted):
            await self._insist(partial(steering.retry, self.network, flow, self._tell))

    def _tell(self, before: Course, after: Course) -> None:
        self.trace.add("composer", f"made {after.id} {after.state}, which was {before.state}")

    async def _begin(self, tasks: Any, flow: str, graph: Graph) -> None:
        advance = await beginning(self.network, tasks, flow, "flow", graph)
        await self._insist(lambda: self.network.advance([advance]))
        self.accepted.add(flow)
        self.trace.add("composer", f"sent {flow}: {[(n.name, sorted(n.parents)) for n in graph.nodes]}")

    async def _steer(self, flow: str) -> None:
        await asyncio.sleep(self.chance.uniform(0, 3))
        self.trace.add("composer", f"cancels {flow}")
        await self._insist(lambda: steering.cancel(self.network, flow, "enough", self._tell))
        if self.chance.random() < 0.7:
            self.trace.add("composer", f"retries {flow}")
            await self._insist(lambda: steering.retry(self.network, flow, self._tell))

    async def _insist(self, do: Callable[[], Awaitable[Any]]) -> None:
        while True:
            try:
                await do()
            except StoreUnavailable:
                await asyncio.sleep(0.2)
            except FlowNotFound:
                return
            else:
                return
