"""Taskiq: a list, which loses jobs of a crashed worker, and a stream, which acknowledges."""

from __future__ import annotations

import logging

from taskiq import AsyncBroker
from taskiq.api import run_receiver_task
from taskiq_redis import ListQueueBroker, RedisStreamBroker

from benchmarks.adapters.base import AsyncAdapter, Started, ignore_start
from benchmarks.start_log import StartLogRow

MAX_TASKS = 100


class TaskiqList(AsyncAdapter):
    settings = f"ListQueueBroker; uvloop; max_async_tasks={MAX_TASKS} (its default), parameters not validated"
    acknowledges = "deletes the job before it runs: a crash loses it"

    def _broker_on(self, url: str) -> AsyncBroker:
        return ListQueueBroker(url)

    async def connect(self, url: str) -> None:
        logging.disable(logging.WARNING)
        self._broker = self._broker_on(url)
        self._started: Started = ignore_start

        async def noop(sent: float, text: str) -> None:  # noqa: ARG001 - sent as an argument
            self._started(sent)

        self._noop = self._broker.task(task_name="noop")(noop)
        await self._broker.startup()

    async def send(self, sent: float, text: str = "") -> None:
        await self._noop.kiq(sent, text)

    async def serve(self, row: StartLogRow) -> None:
        self._started = row
        await run_receiver_task(self._broker, max_async_tasks=MAX_TASKS, validate_params=False)

    async def disconnect(self) -> None:
        await self._broker.shutdown()


class TaskiqStream(TaskiqList):
    settings = f"RedisStreamBroker; uvloop; max_async_tasks={MAX_TASKS} (its default), read by 100"
    acknowledges = "acknowledges after it ran; a dead worker's jobs run again after 10 minutes"

    def _broker_on(self, url: str) -> AsyncBroker:
        return RedisStreamBroker(url, consumer_id="0")
