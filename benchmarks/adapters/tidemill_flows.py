"""Flows of Tidemill as its documentation builds them: default settings; only the URL differs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import uvloop

from benchmarks.adapters.tidemill import TidemillProgram
from benchmarks.start_log import StartLogRow
from tidemill import Flow, FlowStep

T = TypeVar("T")

PATIENCE = 120.0


class TidemillFlowProgram(TidemillProgram):
    """The tasks of the flows, in addition to the no-op task."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        task = self.app.task

        @task(name="step")
        async def step(value: int) -> int:
            self.started(0.0)
            return value + 1

        @task(name="split")
        async def split(width: int) -> list[int]:
            self.started(0.0)
            return list(range(width))

        @task(name="piece")
        async def piece(item: int) -> int:
            self.started(0.0)
            return item

        @task(name="join")
        async def join(items: list[int]) -> int:
            self.started(0.0)
            return len(items)

        self._step, self._split, self._piece, self._join = step, split, piece, join

    def chain(self, steps: int) -> Flow:
        flow = self.app.flow("chain")
        last: FlowStep[int] = flow.add(self._step, 0)
        for _ in range(steps - 1):
            last = flow.add(self._step, last)
        return flow

    def fan_out(self, width: int) -> Flow:
        flow = self.app.flow("fan-out")
        items = flow.add(self._split, width)
        flow.add(self._join, flow.map(self._piece, items))
        return flow


class TidemillFlows:
    settings = (
        "await enqueue of each flow; everything as it comes: 10 slots, timeouts, context and retention on;"
        " how wide a fan-out is is decided when it runs"
    )
    acknowledges = (
        "marks a job done after it ran; a dead worker's jobs run again, and a flow goes on from what is done,"
        " whoever died"
    )

    def open(self, url: str) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._program = TidemillFlowProgram(url)
        self._open = AsyncExitStack()
        self._run(self._open.enter_async_context(self._program.app))

    def _run(self, what: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(what)

    def send_chains(self, chains: int, steps: int) -> None:
        async def each() -> None:
            for _ in range(chains):
                await self._program.chain(steps).enqueue()

        self._run(each())

    def run_chain(self, steps: int) -> int:
        return self._run(self._result(self._program.chain(steps)))

    def run_fan_out(self, width: int) -> int:
        return self._run(self._result(self._program.fan_out(width)))

    async def _result(self, flow: Flow) -> int:
        handle = await flow.enqueue()
        return int(await handle.result(timeout=PATIENCE))

    def work(self, row: StartLogRow) -> None:
        self._program.started = row
        self._run(self._program.app.worker().run())

    def close(self) -> None:
        self._run(self._open.aclose())
        self._runner.close()
