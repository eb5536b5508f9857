"""How long results are kept: defaults per queue, shared queues, and the error for a pruned job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.client.support import run_one
from tidemill import ConfigurationError, JobNotFound, Limit, QueueSettings, Retention, Tidemill
from tidemill.core.queues import DAY_SECONDS
from tidemill.stores.memory import MemoryStore
from tidemill.testing.clocks import ManualClock


def _bounds(kept: Retention) -> tuple[float | None, int | None]:
    return kept.age, kept.count


PLAIN, PAID = (DAY_SECONDS, 100_000), (7 * DAY_SECONDS, 1_000_000)


async def _kept(app: Tidemill, queue: str) -> tuple[float | None, int | None]:
    async with app:
        return _bounds(
            next(info for info in await app.store.queues() if info.name == queue).settings.keep_done
        )


def test_a_queue_keeps_a_day_and_100_000_jobs() -> None:
    settings = QueueSettings()
    assert _bounds(settings.keep_done) == _bounds(settings.keep_cancelled) == PLAIN
    assert _bounds(settings.keep_failed) == (7 * DAY_SECONDS, 100_000)


async def test_a_queue_with_a_pooled_task_keeps_7_days_and_1_000_000() -> None:
    app = Tidemill("memory://")
    pool = app.pool("model", Limit.requests(10, per="minute"))

    @app.task(queue="songs", pool=pool)
    async def describe() -> None: ...

    @app.task(queue="songs")
    async def plain() -> None: ...

    assert await _kept(app, "songs") == PAID


async def test_a_queue_with_a_paid_task_keeps_7_days_and_1_000_000() -> None:
    app = Tidemill("memory://")
    app.queue("mail", weight=3)

    @app.task(paid=True)
    async def describe() -> None: ...

    @app.task(queue="mail")
    async def send() -> None: ...

    assert await _kept(app, "default") == PAID
    assert await _kept(app, "mail") == PLAIN


async def test_declaring_the_queue_after_its_tasks_changes_nothing() -> None:
    app = Tidemill("memory://")

    @app.batch_task(max_items=3, queue="songs", paid=True)
    async def embed(texts: list[str]) -> list[int]:
        return [len(text) for text in texts]

    assert _bounds(app.queue("songs", weight=2).keep_done) == PAID
    assert await _kept(app, "songs") == PAID


@pytest.mark.parametrize("first", ["queue", "task"])
async def test_a_chosen_retention_wins(first: str) -> None:
    """This includes a retention that equals the default of other queues."""
    app = Tidemill("memory://")
    chosen = Retention(age=DAY_SECONDS, count=100_000)
    if first == "queue":
        app.queue("songs", keep_done=chosen)

    @app.task(queue="songs", paid=True)
    async def describe() -> None: ...

    if first == "task":
        app.queue("songs", keep_done=chosen)
    assert await _kept(app, "songs") == PLAIN
    assert _bounds(app.queues["songs"].keep_failed) == PAID


async def test_a_retention_of_the_file_wins(tmp_path: Path) -> None:
    file = tmp_path / "tidemill.toml"
    file.write_text("[queues.songs]\nkeep_done = { count = 5 }\n")
    app = Tidemill("memory://", config=file)

    @app.task(queue="songs", paid=True)
    async def describe() -> None: ...

    assert await _kept(app, "songs") == (None, 5)


async def test_a_program_without_the_paid_task_does_not_shorten_it() -> None:
    """A web process that only enqueues, started after the worker."""
    store = MemoryStore()
    worker, web, chosen = (Tidemill(store=store) for _ in range(3))

    @worker.task(queue="songs", paid=True)
    async def describe() -> None: ...

    web.queue("songs", weight=2)
    chosen.queue("songs", keep_done=Retention(age=60.0))
    assert await _kept(worker, "songs") == PAID
    assert await _kept(web, "songs") == PAID
    assert await _kept(worker, "songs") == PAID
    assert await _kept(chosen, "songs") == (60.0, None)


async def test_an_override_wins_and_its_end_gives_the_default_back() -> None:
    app = Tidemill("memory://")

    @app.task(queue="songs", paid=True)
    async def describe() -> None: ...

    async with app:
        await app.inspect.override("songs", by="ann", keep_done=Retention(count=5))
        assert _bounds((await app.inspect.queue("songs")).settings.keep_done) == (None, 5)
        await app.inspect.clear_override("songs")
        assert _bounds((await app.inspect.queue("songs")).settings.keep_done) == PAID


def test_paid_is_a_switch() -> None:
    async def describe() -> None: ...

    options: dict[str, Any] = {"paid": "yes"}
    with pytest.raises(ConfigurationError, match="paid: must be True or False, is 'yes'"):
        Tidemill("memory://").task(**options)(describe)


async def test_3_000_results_are_all_there_a_minute_later() -> None:
    clock = ManualClock()
    app = Tidemill(store=MemoryStore(clock))

    @app.task(name="square", paid=True)
    async def square(number: int) -> int:
        return number**2

    async with app:
        handles = await app.enqueue_many(square.job(number) for number in range(3000))
        await app.worker(until_idle=True).run()
        clock.advance(60.0)
        while (await app.store.prune()).more:
            pass
        assert [await handle.result() for handle in handles] == [number**2 for number in range(3000)]


async def test_a_pruned_job_names_what_its_queue_keeps(app: Tidemill) -> None:
    app.queue("songs", keep_done=Retention(age=7 * DAY_SECONDS, count=0))

    @app.task(queue="songs")
    async def describe() -> str:
        return "loud"

    handle = await describe.enqueue()
    await run_one(app, "songs")
    await app.store.prune()
    with pytest.raises(JobNotFound) as raised:
        await handle.result()
    says = str(raised.value)
    assert "it ended and was pruned, or it was deleted" in says
    assert "Queue 'songs' keeps done jobs for 7 days, at most 0" in says
    assert "app.queue('songs', keep_done=Retention(age=SECONDS, count=JOBS))" in says
    for ask in (handle.status, handle.cancel, handle.retry, app.job(handle.id).result):
        with pytest.raises(JobNotFound, match="at most 0"):
            await ask()


async def test_an_unknown_id_names_what_all_queues_keep(app: Tidemill) -> None:
    app.queue("mail", keep_done=Retention(age=90.0))
    app.queue("songs", keep_done=Retention())
    async with app:
        with pytest.raises(JobNotFound) as raised:
            await app.job("nobody").result()
    says = str(raised.value)
    assert "the id is wrong, or the job ended" in says
    assert "Queue 'mail' keeps done jobs for 90 seconds, failed ones for 7 days" in says
    assert "queue 'songs' keeps done jobs without a bound" in says
