"""Batches in real child processes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.worker import isolated_batches
from tidemill.clock import SystemClock, SystemEntropy
from tidemill.core.jobs import Job, JobGroup, NewJob
from tidemill.core.queues import QueueSettings
from tidemill.core.retry import Retry
from tidemill.core.states import State
from tidemill.stores.memory import MemoryStore
from tidemill.tasks.batches import make_batch_definition
from tidemill.tasks.context import Context
from tidemill.tasks.definition import Middleware, TaskDefinition
from tidemill.worker import Worker, WorkerOptions


def isolated(handler: Any, **options: Any) -> TaskDefinition:
    settings: dict[str, Any] = {"max_items": 10, "retry": Retry(attempts=1), **options}
    return make_batch_definition(handler, name=handler.__name__, isolate=True, **settings)


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    opened = await MemoryStore().open()
    yield opened
    await opened.close()


async def run(
    store: MemoryStore, task: TaskDefinition, *items: Any, middleware: tuple[Middleware, ...] = ()
) -> list[Job]:
    assert task.batch is not None
    ids = [f"job-{number}" for number in range(len(items))]
    jobs = tuple(
        NewJob(
            id=id_,
            task=task.name,
            payload=msgspec.json.encode({"item": item}),
            batching=task.batch.policy,
        )
        for id_, item in zip(ids, items, strict=True)
    )
    await store.insert([JobGroup("default", jobs)])
    worker = Worker(
        store,
        {task.name: task},
        options=WorkerOptions(until_idle=True),
        clock=SystemClock(),
        entropy=SystemEntropy(),
        middleware=middleware,
    )
    await worker.run()
    found = await store.get(ids)
    return [job for job in found if job is not None]


def result(job: Job) -> Any:
    return None if job.result is None else msgspec.json.decode(job.result)


async def test_results_failures_and_reports_come_back(store: MemoryStore) -> None:
    jobs = await run(store, isolated(isolated_batches.squares), 2, -1, "no number", 3)
    one, negative, bad, two = jobs
    assert result(one).split(" by ")[0] == "4"
    assert result(two).split(" by ")[0] == "9"
    process = {int(result(job).split(" by ")[1]) for job in (one, two)}
    assert len(process) == 1
    assert process != {os.getpid()}
    assert negative.error is not None
    assert (negative.state, negative.error.message) == (State.FAILED, "negative")
    assert bad.reason == "invalid payload"
    for job in (one, negative, two):
        assert [line.line for line in await store.logs(job.id)] == ["3 jobs"]


async def test_an_error_of_one_item_is_found_by_halves(store: MemoryStore) -> None:
    jobs = await run(store, isolated(isolated_batches.squares), *range(10, 17))
    assert [job.state for job in jobs] == [State.FAILED if n == 13 else State.DONE for n in range(10, 17)]
    error = jobs[3].error
    assert error is not None
    assert (error.type, error.message) == ("LookupError", "thirteen")
    assert {job.attempts for job in jobs} == {1}


@pytest.mark.parametrize("on_error", ["bisect", "fail"])
async def test_i8_a_process_that_dies_charges_no_neighbour(store: MemoryStore, on_error: str) -> None:
    """Also with `on_error="fail"`: only the poisonous job pays for a crash."""
    await store.declare({"default": QueueSettings(crash_limit=2)})
    jobs = await run(store, isolated(isolated_batches.deadly, on_error=on_error), 11, 12, 13, 14)
    assert [job.state for job in jobs] == [State.DONE, State.DONE, State.FAILED, State.DONE]
    assert (jobs[2].reason, jobs[2].crashes) == ("poison", 2)
    assert [job.crashes for job in jobs if job is not jobs[2]] == [0, 0, 0]


async def test_a_missing_result_fails_only_its_job(store: MemoryStore) -> None:
    jobs = await run(store, isolated(isolated_batches.short), 12, 13, 14)
    assert [result(job) for job in jobs] == [12, None, 14]


async def test_a_decorated_handler_is_found_and_its_unstorable_result_is_reported(store: MemoryStore) -> None:
    definition = isolated_batches.odd.definition
    assert definition.batch is not None
    jobs = await run(store, replace(definition, isolate=True), 12, 13, 14)
    assert [job.reason for job in jobs] == [None, "result cannot be stored", None]
    assert [result(job) for job in jobs] == [12, None, 14]


async def test_middleware_sees_the_decoded_results(store: MemoryStore) -> None:
    seen: list[Any] = []

    async def around(ctx: Context, run: Callable[[], Any]) -> Any:
        seen.extend(await run())
        return [number * 10 for number in seen]

    jobs = await run(store, isolated(isolated_batches.deadly), 1, 2, middleware=(around,))
    assert seen == [1, 2]
    assert [result(job) for job in jobs] == [10, 20]
