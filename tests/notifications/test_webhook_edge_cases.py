"""Webhook deliveries right after a worker's start, during a short store outage, with a reused job id, and
with a body function that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.notifications.receiver import Receiver, advance_time, make_app, run_worker_until_idle, wait_until
from tidemill import Filter, GiveUp, Retention, State, Tidemill
from tidemill.contract.store import Store
from tidemill.core.jobs import Job
from tidemill.errors import StoreUnavailable
from tidemill.telemetry.events import JobDone, JobFailed
from tidemill.testing import ManualClock
from tidemill.worker import notifier


class Unsayable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def _raises(_: object) -> None:
    raise Unsayable


def an_app_with_songs(clock: ManualClock) -> tuple[Tidemill, Any]:
    app = make_app(clock)

    @app.task(name="songs:make", queue="songs")
    async def make(song: int) -> int:
        if song == 13:
            raise GiveUp("no such song")
        return song

    return app, make


@pytest.mark.parametrize("body", [lambda _: {"title": "\ud800"}, lambda _: {(1, 2): 3}, _raises])
async def test_a_failing_body_function_does_not_stop_other_webhooks(
    clock: ManualClock, receiver: Receiver, body: Callable[[object], object]
) -> None:
    app, make = an_app_with_songs(clock)
    app.webhook("broken", receiver.url, on=["job.done"], body=body)
    app.webhook("whole", f"{receiver.url}/whole", on=["job.done"])
    async with app:
        await make.enqueue(1)
        await run_worker_until_idle(app)
        [failed] = (await app.inspect.find(Filter(queue="tidemill", states=(State.FAILED,)))).jobs
    assert failed.error is not None
    assert "could not be said" in failed.error.message
    assert [got.path for got in receiver.requests] == ["/whole"]


async def test_a_text_from_a_body_function_is_sent_as_body(clock: ManualClock, receiver: Receiver) -> None:
    app, make = an_app_with_songs(clock)
    app.webhook("text", receiver.url, on=["job.done"], body=lambda job: f"song {job.result}")
    async with app:
        await make.enqueue(7)
        await run_worker_until_idle(app)
    assert [got.json for got in receiver.requests] == [{"event": "job.done", "body": "song 7"}]


async def test_the_next_job_with_the_same_id_gets_a_new_webhook_id(
    clock: ManualClock, receiver: Receiver
) -> None:
    app, make = an_app_with_songs(clock)
    app.webhook("all", receiver.url, on=["job.done"])
    app.queue("songs", keep_done=Retention(age=60.0))
    async with app:
        for _ in range(2):
            await make.using(id="song-7").enqueue(7)
            await run_worker_until_idle(app)
            for _ in ("it goes", "its id is forgotten"):
                clock.advance(2 * 3600)
                await app.store.prune(100)
            assert await app.store.get(["song-7"]) == [None]
    assert len({got.headers["webhook-id"] for got in receiver.requests}) == 2


async def test_a_job_pruned_at_once_is_sent_after_a_store_outage(
    clock: ManualClock, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the worker that finished the job can deliver it, because the job is pruned at once."""
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
        monkeypatch.setattr(notifier.Notifier, "find", finds_nothing)
        monkeypatch.setattr(notifier, "STORE_RETRY_SECONDS", 0.01)
        await run_worker_until_idle(app)
        await make.enqueue(1)
        worker = app.worker(heartbeat_thread=False, isolation=False)
        running = asyncio.create_task(worker.run())
        await wait_until(lambda: len(receiver.requests) == 1)
        worker.stop()
        await running


async def test_a_flow_that_ends_right_after_the_worker_starts_is_sent(
    clock: ManualClock, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app(clock)

    @app.task
    async def one(number: int) -> int:
        return number

    async def never(_: object) -> None:
        """Replaces the periodic refresh, which would come too late."""

    app.webhook("flows", receiver.url, on=["flow.ended"])
    async with app:
        monkeypatch.setattr(notifier.Notifier, "_watch", never)
        flow = app.flow("dub", key="7")
        flow.add(one, number=1)
        await flow.enqueue()
        await run_worker_until_idle(app)
    assert [got.json["event"] for got in receiver.requests] == ["flow.ended"]


async def test_a_fast_receiver_does_not_wait_for_a_poll(clock: ManualClock, receiver: Receiver) -> None:
    """Four deliveries run at the same time, and the next starts when one ends, without waiting for a poll."""
    app, make = an_app_with_songs(clock)
    app.webhook("all", receiver.url, on=["job.done"])
    async with app:
        await app.enqueue_many([make.job(song) for song in range(100, 120)])
        worker = app.worker(poll=60, isolation=False)
        running = asyncio.create_task(worker.run())
        await wait_until(lambda: len(receiver.requests) == 20)
        worker.stop()
        await running


async def test_job_events_are_emitted_only_while_a_webhook_needs_them(
    clock: ManualClock, receiver: Receiver
) -> None:
    app, make = an_app_with_songs(clock)
    app.webhook("failed", receiver.url, on=["job.failed"])
    wanted: list[bool] = []

    @app.task
    async def listens() -> None:
        wanted.extend(app.signals.wants(kind) for kind in (JobDone, JobFailed))

    async with app:
        before = app.signals.wants(JobDone)
        await run_worker_until_idle(app)
        await listens.enqueue()
        await make.enqueue(13)
        await advance_time(app, clock, 15.0)
        assert app.signals.wants(JobDone) == before
    assert wanted[0] == before
    assert wanted[1]
    assert len(receiver.requests) == 1
