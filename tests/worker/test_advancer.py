"""Who advances flows: at once the worker that settled a job, and a leader what was left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tests.worker.bench import Bench, Virtually
from tidemill.core.courses import Advance, Agenda, Course, Kind, Next
from tidemill.core.graph import Graph, Node, Work, encode
from tidemill.core.graph_state import FlowState
from tidemill.core.queues import HOUR
from tidemill.flows.advancing import beginning
from tidemill.flows.sweeping import FLOWS_AT_ONCE, sweep
from tidemill.stores.memory import MemoryStore
from tidemill.telemetry.events import ChoreBroke

DAY = 24 * HOUR


async def first() -> str:
    return "one"


async def second(text: str) -> str:
    return f"{text} two"


def chain(*tasks: str) -> Graph:
    nodes: list[Node] = []
    for task in tasks:
        reads = {"text": nodes[-1].name} if nodes else {}
        nodes.append(Node(name=task, work=Work(task=task, queue="default", priority=5), reads=reads))
    return Graph(nodes=tuple(nodes))


async def begin(bench: Bench, graph: Graph) -> None:
    await bench.store.advance([await beginning(bench.store, bench.tasks, "f", "f", graph)])


async def flow(bench: Bench) -> Course:
    [course] = await bench.store.courses(Kind.FLOW, ["f"])
    assert course is not None
    return course


def test_the_worker_that_settled_goes_on_at_once(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        bench.task(first)
        bench.task(second)
        await begin(bench, chain("first", "second"))
        worker = bench.worker()
        running = bench.start(worker)
        await asyncio.sleep(0.1)
        assert (await flow(bench)).state == FlowState.DONE
        assert (await bench.job("f/second/0")).result == b'"one two"'
        worker.stop()
        await running

    virtually(scenario)


def test_what_others_left_behind_is_found_within_two_seconds(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        bench.task(first)
        graph = chain("first")
        left = Next(name="f", state="running", record=encode(graph))
        await bench.store.advance([Advance(kind=Kind.FLOW, id="f", expected=0, next=left, again=True)])
        worker = bench.worker()
        running = bench.start(worker)
        await asyncio.sleep(2)
        assert (await flow(bench)).state == FlowState.DONE
        worker.stop()
        await running

    virtually(scenario)


def test_what_cannot_be_read_ends_no_worker_and_is_left_to_the_leader(virtually: Virtually) -> None:
    class Broken(MemoryStore):
        async def agenda(self, kind: Kind, limit: int = 100, ids: Sequence[str] | None = None) -> Agenda:
            if ids is not None:
                raise ValueError("no such record")
            return await super().agenda(kind, limit, ids)

    async def scenario(bench: Bench) -> None:
        bench.store = await Broken(clock=bench.clock).open()
        bench.task(first)
        await begin(bench, chain("first"))
        worker = bench.worker()
        running = bench.start(worker)
        await asyncio.sleep(4)
        assert {event.chore for event in bench.told(ChoreBroke)} == {"flows"}
        assert (await flow(bench)).state == FlowState.DONE
        worker.stop()
        await running

    virtually(scenario)


def test_many_that_were_left_behind_do_not_wait_for_one_that_nobody_knows(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        bench.task(first)
        ids = [f"f{number:03}" for number in range(2 * FLOWS_AT_ONCE + 50)]
        for id_ in ids:
            graph = chain("unknown" if id_ == ids[0] else "first")
            left = Next(name="f", state="running", record=encode(graph))
            await bench.store.advance([Advance(kind=Kind.FLOW, id=id_, expected=0, next=left, again=True)])
            if id_ == ids[0]:
                await sweep(bench.store, bench.tasks)  # from now on it waits in front of all others
        worker = bench.worker()
        running = bench.start(worker)
        await asyncio.sleep(4)
        courses = await bench.store.courses(Kind.FLOW, ids)
        undone = [course.id for course in courses if course is not None and course.state != FlowState.DONE]
        assert undone == ids[:1]
        worker.stop()
        await running

    virtually(scenario)


def test_a_task_nobody_knows_fails_after_a_day(virtually: Virtually) -> None:
    """Of which the worker has seen an hour itself."""

    async def scenario(bench: Bench) -> None:
        bench.task(first)
        await begin(bench, chain("first", "second"))
        worker = bench.worker()
        running = bench.start(worker)
        await asyncio.sleep(HOUR - 10)
        bench.clock.step_wall(DAY)
        assert (await flow(bench)).state == FlowState.RUNNING
        await asyncio.sleep(30)
        assert (await flow(bench)).state == FlowState.FAILED
        job = await bench.job("f/second/0")
        assert job.error is not None
        assert (job.error.type, "second" in job.error.message) == ("UnknownTask", True)
        worker.stop()
        await running

    virtually(scenario)
