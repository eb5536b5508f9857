"""A fan-out wider than its queue's max_length, on PostgreSQL: all jobs are created, and no other job gets
in.

`make chaos` runs the whole width, with TIDEMILL_FAN_OUT=10000."""

from __future__ import annotations

import asyncio
import os
from collections import Counter

import pytest

from tidemill import Filter, QueueFull, State, Tidemill
from tidemill.contract.coordination import worklist_topic
from tidemill.core.documents import DocumentKind
from tidemill.stores.postgres import PostgresStore

WIDE = int(os.environ.get("TIDEMILL_FAN_OUT", "1000"))


class Program:
    def __init__(self, url: str) -> None:
        self.app = app = Tidemill(store=PostgresStore(url))
        app.queue("parts", max_length=WIDE // 2)
        self.ran = ran = Counter[int]()

        @app.task(name="count", queue="steps")
        async def count() -> list[int]:
            return list(range(WIDE))

        @app.task(name="double", queue="parts")
        async def double(number: int) -> int:
            ran[number] += 1
            return 2 * number

        @app.task(name="total", queue="steps")
        async def total(numbers: list[int]) -> int:
            return sum(numbers)

        self.count, self.double, self.total = count, double, total

    async def until_made(self, flow: str) -> None:
        listener = self.app.store.listen([worklist_topic(DocumentKind.FLOW)])
        while (await self.app.inspect.flow(flow)).steps[1].live < WIDE:
            listener.arm()
            await listener.wait(0.05)
        listener.close()


@pytest.mark.timeout(60 + WIDE // 10)
async def test_i17_a_fan_out_may_be_wider_than_its_queue_is_long(prepared_postgres_url: str) -> None:
    program = Program(prepared_postgres_url)
    app = program.app
    async with app:
        flow = app.flow("sums", key="a")
        flow.add(program.total, numbers=flow.map(program.double, number=flow.add(program.count)))
        handle = await flow.enqueue()
        await app.inspect.pause("parts")
        worker = app.worker(heartbeat_thread=False, isolation=False, concurrency=50)
        task = asyncio.create_task(worker.run())
        await program.until_made("sums/a")
        assert (await app.inspect.count(Filter(queue="parts", states=(State.READY,)))).jobs == WIDE
        with pytest.raises(QueueFull):
            await program.double.enqueue(number=-1)
        await app.inspect.resume("parts")
        assert await handle.result(timeout=30 + WIDE / 20) == 2 * sum(range(WIDE))
        await program.double.enqueue(number=0)
        worker.stop()
        await task
        assert await app.store.check() == ()
    del program.ran[0]  # of which there may be another by now
    assert (len(program.ran), set(program.ran.values())) == (WIDE - 1, {1})
