"""Flows of one step, several parallel jobs and a last step; every step runs and every end is emitted once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tidemill import Filter, FlowHandle, State, Tidemill
from tidemill.contract.store import Store
from tidemill.core.documents import DocumentKind
from tidemill.telemetry.events import FlowEnded

PARTS = 3


class Sums:
    def __init__(self, store: Store, ended: list[FlowEnded]) -> None:
        self.app = app = Tidemill(store=store)
        app.on(FlowEnded)(ended.append)

        @app.task(name="split", queue="steps")
        async def split() -> list[int]:
            return list(range(PARTS))

        @app.task(name="part", queue="steps")
        async def part(number: int) -> int:
            return number

        @app.task(name="join", queue="steps")
        async def join(numbers: list[int]) -> int:
            return sum(numbers)

        self.split, self.part, self.join = split, part, join

    async def send(self, key: str) -> FlowHandle:
        flow = self.app.flow("sum", key=key)
        flow.add(self.join, numbers=flow.map(self.part, number=flow.add(self.split)))
        return await flow.enqueue()


async def all_once(app: Tidemill, flows: int, ended: Sequence[FlowEnded]) -> None:
    found = (await app.inspect.find(Filter(states=tuple(State)), limit=1000)).jobs
    assert Counter(job.state for job in found) == {State.DONE: flows * (PARTS + 2)}
    assert {job.generation for job in found} == {0}
    assert (await app.store.worklist(DocumentKind.FLOW)).work_items == ()
    assert Counter(one.flow for one in ended) == {f"sum/{number}": 1 for number in range(flows)}
