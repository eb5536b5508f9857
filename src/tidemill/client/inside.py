"""Jobs sent inside a transaction of the caller's: they commit or vanish with the caller's own rows.

Nothing is known of such a job until the caller commits, not even whether a job with the same unique key is
there. So the request is written as an arrival, and a worker makes the job of it.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tidemill.client.handle import JobHandle
from tidemill.client.request import JobRequest
from tidemill.contract.transactions import Transactional
from tidemill.core.job import Job
from tidemill.errors import ConfigurationError, JobNotFound
from tidemill.times import read_seconds

if TYPE_CHECKING:
    from tidemill.client.client import Client
    from tidemill.contract.store import Store

R = TypeVar("R")

ADMITTED_WITHIN, LOOK_EVERY = 60.0, 0.05
"""Seconds."""

_SAID = ("priority", "at", "expires", "timeout", "unique", "key", "trace", "tags")


class ArrivingHandle(JobHandle[R]):
    """Of a job that is none yet: the transaction has to be committed, and a worker to come by."""

    __slots__ = ()

    async def _ended(self, timeout: float | timedelta | None) -> Job:  # noqa: ASYNC109 - see `result`
        patience = (
            ADMITTED_WITHIN if timeout is None else read_seconds("timeout", timeout, ConfigurationError)
        )
        loop = asyncio.get_running_loop()
        until, store = loop.time() + patience, await self._client.store()
        while (await store.get([self.id]))[0] is None:
            if loop.time() >= until:
                raise JobNotFound(
                    f"no worker has taken in job {self.id!r} within {patience:g} s: its transaction is not "
                    "committed or was rolled back, no worker runs, or its unique key is held by another job"
                )
            await asyncio.sleep(LOOK_EVERY)
        return await super()._ended(None if timeout is None else max(0.0, until - loop.time()))


async def enqueue(client: Client, connection: object, request: JobRequest[R]) -> JobHandle[R]:
    store = _able(await client.store())
    with client.traced(request) as traced:
        job = traced.job
        await store.send_inside(connection, job.id, job.task, job.payload, options_of(traced))
    return ArrivingHandle(client, job.id)


def enqueue_sync(client: Client, connection: object, request: JobRequest[R]) -> JobHandle[R]:
    store = _able(client.opened())
    with client.traced(request) as traced:
        job = traced.job
        store.send_inside_sync(connection, job.id, job.task, job.payload, options_of(traced))
    return ArrivingHandle(client, job.id)


def options_of(request: JobRequest[Any]) -> bytes:
    """What an arrival says of its job. All of it: the worker that admits it may know another default."""
    job = request.job
    said = {name: getattr(job, name) for name in _SAID}
    if job.delay:
        said["delay"] = job.delay  # from its arrival on, by the store's clock
    options = {"queue": request.queue} | {name: value for name, value in said.items() if value is not None}
    return msgspec.json.encode(options)


def _able(store: Store) -> Transactional:
    if isinstance(store, Transactional):
        return store
    raise ConfigurationError(
        "connection: this store is not in a database that you could have a transaction in; use a "
        "postgresql:// store, or send the job after your commit without connection="
    )
