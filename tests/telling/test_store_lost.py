"""The store is gone: people hear of it from whoever misses it, at once and without a job (S12)."""

from __future__ import annotations

import asyncio

import pytest

from tests.servers.redis import Redis
from tests.telling.support import Receiver, until
from tidemill import Tidemill
from tidemill.telemetry.events import AlertSent, StoreBack, StoreLost


async def test_a_lost_store_is_told_directly_and_nothing_is_lost_s12(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMILL_ALERTS_SLACK_URL", f"{receiver.url}/slack")
    monkeypatch.setenv("TIDEMILL_WEB_PUBLIC_URL", "https://jobs.example")
    receiver.status = 200
    with Redis() as server:
        app = Tidemill(server.url)
        app.alert("store lost", on="store_lost", above=0.2)
        seen: list[object] = []
        ran: list[int] = []
        app.on(StoreLost, StoreBack, AlertSent)(seen.append)

        @app.task
        async def note(number: int) -> None:
            ran.append(number)

        async with app:
            await note.enqueue(1)
            worker = app.worker(poll=0.2)
            running = asyncio.create_task(worker.run())
            await until(lambda: ran == [1])
            server.kill()
            await until(lambda: len(receiver.got) == 1, seconds=30)
            assert [type(event) for event in seen[:1]] == [StoreLost]
            server.start()
            await until(lambda: len(receiver.got) == 2, seconds=60)
            await note.enqueue(2)
            await until(lambda: ran == [1, 2], seconds=30)
            worker.stop()
            await running
    lost, back = (got.json["text"] for got in receiver.got)
    assert f"worker {worker.id}: the store has not answered for" in lost
    assert "Rule: store lost" in lost
    assert "Since: " in lost
    assert "Look: https://jobs.example/alerts" in lost
    assert f"Store: {app.url}" in lost
    assert "(over)" in back
