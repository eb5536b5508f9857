"""The worker that settled a job advances its flow at once; a leader advances the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tests.worker.bench import Bench, Virtually
from tidemill.core.documents import Advance, Document, DocumentKind, DocumentUpdate, Worklist
from tidemill.core.flow_graph import FlowGraph, JobTemplate, StepNode, encode_graph
from tidemill.core.flow_progress import FlowState
from tidemill.core.queues import HOUR_SECONDS
from tidemill.flows.advance import make_first_advance
from tidemill.flows.advance_pass import MAX_FLOWS_PER_PASS, advance_flows
from tidemill.stores.memory import MemoryStore
from tidemill.telemetry.events import MaintenanceCrashed

DAY = 24 * HOUR_SECONDS


async def first() -> str:
    return "one"


async def second(text: str) -> str:
    return f"{text} two"


def chain(*tasks: str) -> FlowGraph:
    nodes: list[StepNode] = []
    for task in tasks:
        reads = {"text": nodes[-1].name} if nodes else {}
        nodes.append(
            StepNode(name=task, work=JobTemplate(task=task, queue="default", priority=5), reads=reads)
        )
    return FlowGraph(nodes=tuple(nodes))


async def begin(bench: Bench, graph: FlowGraph) -> None:
    await bench.store.advance([await make_first_advance(bench.store, bench.tasks, "f", "f", graph)])


async def flow(bench: Bench) -> Document:
    [document] = await bench.store.documents(DocumentKind.FLOW, ["f"])
    assert document is not None
    return document


def test_the_worker_that_settled_a_job_advances_its_flow_at_once(virtually: Virtually) -> None:
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


def test_the_leader_advances_flows_of_dead_workers_within_two_seconds(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        bench.task(first)
        graph = chain("first")
        left = DocumentUpdate(name="f", state="running", record=encode_graph(graph))
        await bench.store.advance(
            [Advance(kind=DocumentKind.FLOW, id="f", expected=0, next=left, requeue=True)]
        )
        worker = bench.worker()
        running = bench.start(worker)
        await asyncio.sleep(2)
        assert (await flow(bench)).state == FlowState.DONE
        worker.stop()
        await running

    virtually(scenario)


def test_an_unreadable_flow_ends_no_worker_and_is_left_to_the_leader(virtually: Virtually) -> None:
    class Broken(MemoryStore):
        async def worklist(
            self, kind: DocumentKind, limit: int = 100, ids: Sequence[str] | None = None
        ) -> Worklist:
            if ids is not None:
                raise ValueError("no such record")
            return await super().worklist(kind, limit, ids)

    async def scenario(bench: Bench) -> None:
        bench.store = await Broken(clock=bench.clock).open()
        bench.task(first)
        await begin(bench, chain("first"))
        worker = bench.worker()
        running = bench.start(worker)
        await asyncio.sleep(4)
        assert {event.operation for event in bench.events_of(MaintenanceCrashed)} == {"flows"}
        assert (await flow(bench)).state == FlowState.DONE
        worker.stop()
        await running

    virtually(scenario)


def test_many_flows_do_not_wait_for_one_with_an_unknown_task(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        bench.task(first)
        ids = [f"f{number:03}" for number in range(2 * MAX_FLOWS_PER_PASS + 50)]
        for id_ in ids:
            graph = chain("unknown" if id_ == ids[0] else "first")
            left = DocumentUpdate(name="f", state="running", record=encode_graph(graph))
            await bench.store.advance(
                [Advance(kind=DocumentKind.FLOW, id=id_, expected=0, next=left, requeue=True)]
            )
            if id_ == ids[0]:
                await advance_flows(bench.store, bench.tasks)  # from now on it waits in front of all others
        worker = bench.worker()
        running = bench.start(worker)
        await asyncio.sleep(4)
        documents = await bench.store.documents(DocumentKind.FLOW, ids)
        undone = [
            document.id for document in documents if document is not None and document.state != FlowState.DONE
        ]
        assert undone == ids[:1]
        worker.stop()
        await running

    virtually(scenario)


def test_a_flow_with_an_unknown_task_fails_after_a_day(virtually: Virtually) -> None:
    """The worker has seen one of these hours itself."""

    async def scenario(bench: Bench) -> None:
        bench.task(first)
        await begin(bench, chain("first", "second"))
        worker = bench.worker()
        running = bench.start(worker)
        await asyncio.sleep(HOUR_SECONDS - 10)
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
