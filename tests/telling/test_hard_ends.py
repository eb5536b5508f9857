"""What ends is told also when a worker has just begun, the store is away for a moment, an id is used again,
or the words of one webhook cannot be said."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.telling.support import Receiver, an_app, pass_time, until, work
from tidemill import Filter, GiveUp, Retention, State, Tidemill
from tidemill.contract.store import Store
from tidemill.core.job import Job
from tidemill.errors import StoreUnavailable
from tidemill.telemetry.events import JobDone, JobFailed
from tidemill.testing import ManualClock
from tidemill.worker import teller


class Unsayable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def _raises(_: object) -> None:
    raise Unsayable


def an_app_with_songs(clock: ManualClock) -> tuple[Tidemill, Any]:
    app = an_app(clock)

    @app.task(name="songs:make", queue="songs")
    async def make(song: int) -> int:
        if song == 13:
            raise GiveUp("no such song")
        return song

    return app, make


@pytest.mark.parametrize("body", [lambda _: {"title": "\ud800"}, lambda _: {(1, 2): 3}, _raises])
async def test_words_that_cannot_be_said_hide_nothing_from_others(
    clock: ManualClock, receiver: Receiver, body: Callable[[object], object]
) -> None:
    app, make = an_app_with_songs(clock)
    app.webhook("broken", receiver.url, on=["job.done"], body=body)
    app.webhook("whole", f"{receiver.url}/whole", on=["job.done"])
    async with app:
        await make.enqueue(1)
        await work(app)
        [failed] = (await app.inspect.find(Filter(queue="tidemill", states=(State.FAILED,)))).jobs
    assert failed.error is not None
    assert "could not be said" in failed.error.message
    assert [got.path for got in receiver.got] == ["/whole"]


async def test_words_that_are_a_text_are_told(clock: ManualClock, receiver: Receiver) -> None:
    app, make = an_app_with_songs(clock)
    app.webhook("text", receiver.url, on=["job.done"], body=lambda job: f"song {job.result}")
    async with app:
        await make.enqueue(7)
        await work(app)
    assert [got.json for got in receiver.got] == [{"event": "job.done", "body": "song 7"}]


async def test_the_next_job_of_an_id_ends_anew(clock: ManualClock, receiver: Receiver) -> None:
    app, make = an_app_with_songs(clock)
    app.webhook("all", receiver.url, on=["job.done"])
    app.queue("songs", keep_done=Retention(age=60.0))
    async with app:
        for _ in range(2):
            await make.using(id="song-7").enqueue(7)
            await work(app)
            for _ in ("it goes", "its id is forgotten"):
                clock.advance(2 * 3600)
                await app.store.prune(100)
            assert await app.store.get(["song-7"]) == [None]
    assert len({got.headers["webhook-id"] for got in receiver.got}) == 2


async def test_what_is_pruned_at_once_is_told_though_the_store_was_away(
    clock: ManualClock, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the worker that ended it: nobody else could find it."""
    app, make = an_app_with_songs(clock)
    app.webhook("all", receiver.url, on=["job.done"])
    away = 2

    async with app:
        get = type(app.store).get

        async def is_away(self: Store, ids: Sequence[str]) -> list[Job | None]:
            nonlocal away
            away -= 1
            if away >= 0:
                raise StoreUnavailable("away")
            return await get(self, ids)

        async def finds_nothing(_: object) -> bool:
            return False

        monkeypatch.setattr(type(app.store), "get", is_away)
        monkeypatch.setattr(teller.Teller, "find", finds_nothing)
        monkeypatch.setattr(teller, "AGAIN_IN", 0.01)
        await work(app)
        await make.enqueue(1)
        worker = app.worker(heartbeat_thread=False, isolation=False)
        running = asyncio.create_task(worker.run())
        await until(lambda: len(receiver.got) == 1)
        worker.stop()
        await running


async def test_a_flow_that_ends_as_soon_as_a_worker_begins_is_told(
    clock: ManualClock, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = an_app(clock)

    @app.task
    async def one(number: int) -> int:
        return number

    async def never(_: object) -> None:
        """Whoever lists webhooks every few seconds comes too late."""

    app.webhook("flows", receiver.url, on=["flow.ended"])
    async with app:
        monkeypatch.setattr(teller.Teller, "_watch", never)
        flow = app.flow("dub", key="7")
        flow.add(one, number=1)
        await flow.enqueue()
        await work(app)
    assert [got.json["event"] for got in receiver.got] == ["flow.ended"]


async def test_a_receiver_that_is_quick_is_told_as_quickly(clock: ManualClock, receiver: Receiver) -> None:
    """Four at once, and the next as soon as one of them was taken: nobody waits for a look."""
    app, make = an_app_with_songs(clock)
    app.webhook("all", receiver.url, on=["job.done"])
    async with app:
        await app.enqueue_many([make.job(song) for song in range(100, 120)])
        worker = app.worker(poll=60, isolation=False)
        running = asyncio.create_task(worker.run())
        await until(lambda: len(receiver.got) == 20)
        worker.stop()
        await running


async def test_no_event_is_made_for_every_job_unless_somebody_wants_it(
    clock: ManualClock, receiver: Receiver
) -> None:
    app, make = an_app_with_songs(clock)
    app.webhook("failed", receiver.url, on=["job.failed"])
    heard: list[bool] = []

    @app.task
    async def listens() -> None:
        heard.extend(app.signals.wants(kind) for kind in (JobDone, JobFailed))

    async with app:
        before = app.signals.wants(JobDone)
        await work(app)
        await listens.enqueue()
        await make.enqueue(13)
        await pass_time(app, clock, 15.0)
        assert app.signals.wants(JobDone) == before
    assert heard[0] == before
    assert heard[1]
    assert len(receiver.got) == 1
