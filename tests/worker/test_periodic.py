"""Periodic functions: on one worker at a time, woken on request, and stopped between two runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.worker.bench import Bench, Virtually
from tidemill import ConfigurationError, Tidemill
from tidemill.metrics.rollup import load_samples
from tidemill.tasks.periodic import PeriodicFunction
from tidemill.telemetry.events import PeriodicFailed
from tidemill.worker import Worker, WorkerOptions


def periodic(bench: Bench, function: Callable[[], Awaitable[Any]], **options: Any) -> PeriodicFunction[Any]:
    settings: dict[str, Any] = {"every": 60, "retry_in": None, "on_every_worker": False, **options}
    return PeriodicFunction(
        "reconcile", function, send_wakeup=lambda topic: bench.store.wake([topic]), **settings
    )


@asynccontextmanager
async def workers(bench: Bench, *periodics: PeriodicFunction[Any]) -> AsyncIterator[list[Worker]]:
    """Runs one worker per periodic function, as processes that share a store would."""
    made = [
        Worker(
            bench.store,
            bench.tasks,
            periodics=(one,),
            options=WorkerOptions(heartbeat_thread=False, isolation=False),
            clock=bench.clock,
            entropy=bench.entropy,
            signals=bench.signals,
        )
        for one in periodics
    ]
    running = [bench.start(worker) for worker in made]
    try:
        yield made
    finally:
        for worker in made:
            worker.stop()
        await asyncio.gather(*running)


def test_one_of_several_workers_runs_it_and_another_takes_over(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        runs: list[int] = []

        def made(number: int) -> PeriodicFunction[Any]:
            async def reconcile() -> None:
                runs.append(number)

            return periodic(bench, reconcile, every=10)

        async with workers(bench, made(0), made(1)) as (first, _):
            await asyncio.sleep(95)
            assert set(runs) == {0}
            assert 9 <= len(runs) <= 11
            runs.clear()
            first.stop()
            await asyncio.sleep(30)
            assert set(runs) == {1}

    virtually(scenario)


def test_every_worker_runs_it_if_asked_to(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        runs: list[int] = []

        def made(number: int) -> PeriodicFunction[Any]:
            async def reconcile() -> None:
                runs.append(number)

            return periodic(bench, reconcile, every=10, on_every_worker=True)

        async with workers(bench, made(0), made(1)):
            await asyncio.sleep(15)
            assert sorted(runs) == [0, 0, 1, 1]

    virtually(scenario)


def test_a_wake_up_from_any_process_reaches_the_worker_that_runs_it(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        runs: list[float] = []

        async def reconcile() -> None:
            runs.append(asyncio.get_running_loop().time())

        leading, waiting, outside = (periodic(bench, reconcile, every=3600) for _ in range(3))
        async with workers(bench, leading, waiting):
            await asyncio.sleep(10)
            assert len(runs) <= 2
            for awake in (leading, waiting, outside):
                before = len(runs)
                awake.wake()
                awake.wake()
                await asyncio.sleep(1)
                assert len(runs) == before + 1

    virtually(scenario)


def test_equal_errors_are_reported_once_and_all_are_counted(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        errors = ["away", "away", "full", ""]

        async def reconcile() -> None:
            if errors and (error := errors.pop(0)):
                raise RuntimeError(error)

        async with workers(bench, periodic(bench, reconcile, every=600, retry_in=5)):
            await asyncio.sleep(60)
        assert [event.message for event in bench.events_of(PeriodicFailed)] == ["away", "full"]
        assert {event.name for event in bench.events_of(PeriodicFailed)} == {"reconcile"}
        samples = await load_samples(bench.store)
        assert dict(samples["tidemill_periodic_failures_total"].series) == {("reconcile",): (3.0,)}
        assert dict(samples["tidemill_periodic_runs_total"].series)["reconcile",] == (4.0,)

    virtually(scenario)


def test_i20_a_run_that_has_begun_ends_before_the_worker_stops(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        done: list[str] = []
        began = asyncio.Event()

        async def reconcile() -> None:
            began.set()
            await asyncio.sleep(2)
            done.append("committed")

        async with workers(bench, periodic(bench, reconcile)):
            await began.wait()
        assert done == ["committed"]

    virtually(scenario)


def test_a_run_that_does_not_end_is_cancelled(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        began, ended = asyncio.Event(), asyncio.Event()

        async def reconcile() -> None:
            began.set()
            try:
                await asyncio.sleep(3600)
            finally:
                ended.set()

        start = asyncio.get_running_loop().time()
        async with workers(bench, periodic(bench, reconcile)):
            await began.wait()
        assert ended.is_set()
        assert asyncio.get_running_loop().time() - start < 30

    virtually(scenario)


def test_a_worker_that_runs_until_idle_runs_it_once(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        runs: list[str] = []

        async def reconcile() -> None:
            runs.append("run")

        worker = Worker(
            bench.store,
            bench.tasks,
            periodics=(periodic(bench, reconcile),),
            options=WorkerOptions(heartbeat_thread=False, isolation=False, until_idle=True),
            clock=bench.clock,
            entropy=bench.entropy,
            signals=bench.signals,
        )
        await worker.run()
        assert runs == ["run"]

    virtually(scenario)


async def test_an_application_declares_a_periodic_function() -> None:
    app = Tidemill("memory://")

    @app.periodic("reconcile", every=60)
    async def reconcile() -> int:
        return 7

    assert await reconcile() == 7
    assert app.periodics == {"reconcile": reconcile}
    reconcile.wake()  # without a worker and an open store nothing happens
    with pytest.raises(ConfigurationError, match="periodic 'reconcile' is declared twice"):
        app.periodic("reconcile", every=60)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, r"^periodic 'p': every: must be a number of seconds above 0, is 0"),
        ({"every": "x"}, r"^periodic 'p': every: must be a number of seconds or a timedelta, is 'x'"),
        ({"every": 5, "retry_in": -1}, r"^periodic 'p': retry_in: must be a number of seconds above 0"),
    ],
)
def test_a_wrong_period_is_refused(options: dict[str, Any], message: str) -> None:
    async def run() -> None: ...

    with pytest.raises(ConfigurationError, match=message):
        Tidemill("memory://").periodic("p", **options)(run)


def test_a_function_that_is_not_async_is_refused() -> None:
    declare: Any = Tidemill("memory://").periodic("p", every=5)
    with pytest.raises(ConfigurationError, match="must be an async function without arguments"):
        declare(lambda: None)
