"""Programs without an event loop, with several loops, and with several processes."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.support import FaultyStore, RecordingStore, run_one
from tidemill import (
    ConfigurationError,
    Filter,
    JobCancelled,
    JobNotFound,
    State,
    StoreUnavailable,
    Task,
    Tidemill,
)
from tidemill.client.background_loop import BackgroundLoop
from tidemill.contract.store import BlockingVerbs, Store
from tidemill.stores.memory import MemoryStore


class AsyncOnlyStore(FaultyStore):
    """A store without blocking verbs."""

    @property
    def blocking(self) -> BlockingVerbs | None:
        return None

    def new_handle(self) -> Store:
        return AsyncOnlyStore(self.store.new_handle()).as_store()


@pytest.fixture(params=["memory", "sqlite", "only async"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tidemill]:
    if request.param == "only async":
        app = Tidemill(store=AsyncOnlyStore(MemoryStore()).as_store())
    else:
        app = Tidemill("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db")
    yield app
    app.close_sync()


def _double(app: Tidemill) -> Task[[int], int]:
    @app.task(name="double")
    def double(number: int) -> int:
        return number * 2

    return double


def test_a_job_is_sent_and_its_result_read(app: Tidemill) -> None:
    double = _double(app)
    handle = double.enqueue_sync(4)
    assert handle.status_sync().state is State.READY
    app.client.run_sync(lambda: run_one(app))
    assert handle.result_sync(timeout=30) == 8
    other = double.enqueue_sync(5)
    assert other.cancel_sync("no")
    with pytest.raises(JobCancelled):
        other.result_sync()
    assert other.retry_sync()
    with pytest.raises(JobNotFound):
        app.job("nowhere").status_sync()
    with pytest.raises(JobNotFound):
        app.job("nowhere").cancel_sync()


@pytest.mark.usefixtures("wakeups_only")
def test_a_waiter_in_one_thread_gets_a_result_from_another(recording_store: RecordingStore) -> None:
    app = Tidemill(store=recording_store.as_store())
    handle = _double(app).enqueue_sync(4)
    results: list[int] = []
    waiter = threading.Thread(target=lambda: results.append(handle.result_sync(timeout=600)), daemon=True)
    waiter.start()
    recording_store.wait_for(1)
    app.client.run_sync(lambda: run_one(app))
    waiter.join(30)
    assert results == [8]
    app.close_sync()


def test_blocking_methods_are_refused_on_a_loop_naming_the_async_one(app: Tidemill) -> None:
    double = _double(app)
    handle = double.enqueue_sync(4)

    async def on_a_loop() -> None:
        for verb in ("result", "status", "cancel", "retry"):
            with pytest.raises(ConfigurationError, match=rf"{verb}_sync was called.*`await {verb}\("):
                getattr(handle, f"{verb}_sync")()
        with pytest.raises(ConfigurationError, match="await close"):
            app.close_sync()

    asyncio.run(on_a_loop())


def test_enqueueing_on_a_loop_needs_a_store_with_blocking_verbs(tmp_path: Path) -> None:
    apps = [
        Tidemill(f"sqlite:///{tmp_path}/jobs.db"),
        Tidemill(store=AsyncOnlyStore(MemoryStore()).as_store()),
    ]
    fine, refused = [_double(app) for app in apps]

    async def on_a_loop() -> None:
        assert not fine.enqueue_sync(1).existing
        with pytest.raises(ConfigurationError, match="await enqueue"):
            refused.enqueue_sync(1)

    asyncio.run(on_a_loop())
    for app in apps:
        app.close_sync()


def test_many_jobs_and_many_threads(app: Tidemill) -> None:
    double = _double(app)
    handles = app.enqueue_many_sync(double.job(n) for n in range(100))
    threads = [threading.Thread(target=lambda: double.enqueue_sync(1)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({handle.id for handle in handles}) == 100

    async def count() -> int:
        async with app:
            return (await app.store.counts())["default"][State.READY]

    assert asyncio.run(count()) == 108


def test_one_application_in_one_loop_after_another(app: Tidemill) -> None:
    double = _double(app)

    async def send() -> str:
        return (await double.enqueue(1)).id

    async def send_and_close() -> str:
        async with app:
            return await send()

    ids = {asyncio.run(send()), asyncio.run(send_and_close()), asyncio.run(send_and_close())}
    ids.add(double.enqueue_sync(1).id)

    async def look() -> set[str]:
        async with app:
            return {job.id for job in (await app.store.find(Filter())).jobs}

    assert asyncio.run(look()) == ids


def test_a_loop_per_call_collects_no_connections(tmp_path: Path) -> None:
    app = Tidemill(f"sqlite:///{tmp_path}/jobs.db")
    double = _double(app)

    async def send() -> None:
        await double.enqueue(1)

    asyncio.run(send())
    threads = threading.active_count()
    for _ in range(5):
        asyncio.run(send())
    assert threading.active_count() == threads
    assert len(app.client._sessions._open) == 1
    asyncio.run(app.close())


def test_close_raises_in_callers_that_still_wait() -> None:
    background_loop, began, errors = BackgroundLoop(), threading.Event(), []

    async def forever() -> None:
        began.set()
        await asyncio.Event().wait()

    def wait() -> None:
        with pytest.raises(StoreUnavailable, match="closed while this call waited") as caught:
            background_loop.run(forever)
        errors.append(caught.value)

    waiter = threading.Thread(target=wait)
    waiter.start()
    began.wait(30)
    background_loop.stop()
    waiter.join(30)
    assert len(errors) == 1


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # that is what is tested
def test_a_forked_child_can_enqueue(tmp_path: Path) -> None:
    app = Tidemill(f"sqlite:///{tmp_path}/jobs.db")
    double = _double(app)
    mine = double.enqueue_sync(1)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            double.using(id="from the child").enqueue_sync(2)
            assert mine.status_sync().state is State.READY
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert app.job("from the child").status_sync().state is State.READY
    app.close_sync()


class UnreachableVerbs:
    """Blocking verbs of a store that cannot be reached; each try takes `costs` seconds."""

    def __init__(self, clock: SteppedClock, costs: float) -> None:
        self.clock, self.costs, self.tries = clock, costs, 0

    def insert(self, groups: object) -> object:
        self.tries += 1
        self.clock.now += self.costs
        raise StoreUnavailable("locked")


class SteppedClock:
    boot_id = "boot"

    def __init__(self) -> None:
        self.now = 0.0

    def wall(self) -> float:
        return self.now

    def boot(self) -> float:
        return self.now


@pytest.mark.parametrize(("costs", "tries"), [(4.0, 1), (1.5, 3)])
def test_a_blocking_enqueue_gives_up_within_its_deadline_i22(costs: float, tries: int) -> None:
    clock = SteppedClock()
    app = Tidemill("memory://", clock=clock)
    broken = UnreachableVerbs(clock, costs)
    app.client._blocking = broken  # type: ignore[assignment]
    with pytest.raises(StoreUnavailable, match="same id") as caught:
        _double(app).using(id="mine").enqueue_sync(1)
    assert caught.value.ids == ("mine",)
    assert broken.tries == tries
    assert clock.now <= 5.0
