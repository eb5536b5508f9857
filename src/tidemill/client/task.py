"""`Task`: the object that `@app.task` returns. Also enqueues jobs inside a database transaction of the
caller."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, cast

import msgspec

from tidemill.client.client import Client
from tidemill.client.job_handle import JobHandle
from tidemill.client.job_options import CheckedJobOptions, JobOptions, default_options, with_options
from tidemill.client.request import JobRequest
from tidemill.contract.jobs import TransactionalStore
from tidemill.core.jobs import Job
from tidemill.errors import ConfigurationError, InvalidJob, JobNotFound
from tidemill.tasks.definition import TaskDefinition
from tidemill.times import parse_seconds

if TYPE_CHECKING:
    from tidemill.contract.store import Store


ResultT = TypeVar("ResultT")

ADMISSION_TIMEOUT_SECONDS, ADMISSION_POLL_SECONDS = 60.0, 0.05
"""Seconds."""

_ARRIVAL_FIELDS = ("priority", "at", "expires", "timeout", "unique", "key", "trace", "tags")


class ArrivalHandle(JobHandle[ResultT]):
    """The handle of a job that was sent inside the caller's transaction. The job exists after the commit,
    when a worker has admitted it.

    `result` first waits until the job exists. It raises JobNotFound if that takes longer than `timeout` (60 s
    if None)."""

    __slots__ = ()

    async def _ended(self, timeout: float | timedelta | None) -> Job:  # noqa: ASYNC109 - see `result`
        patience = ADMISSION_TIMEOUT_SECONDS
        if timeout is not None:
            patience = parse_seconds("timeout", timeout, ConfigurationError)
        loop = asyncio.get_running_loop()
        until, store = loop.time() + patience, await self._client.store()
        while (await store.get([self.id]))[0] is None:
            if loop.time() >= until:
                raise JobNotFound(
                    f"no worker has taken in job {self.id!r} within {patience:g} s: its transaction is not "
                    "committed or was rolled back, no worker runs, or its unique key is held by another job"
                )
            await asyncio.sleep(ADMISSION_POLL_SECONDS)
        return await super()._ended(None if timeout is None else max(0.0, until - loop.time()))


async def enqueue_in_transaction(
    client: Client, connection: object, request: JobRequest[ResultT]
) -> JobHandle[ResultT]:
    store = _require_transactional(await client.store())
    with client.traced(request) as traced:
        job = traced.job
        await store.send_in_transaction(connection, job.id, job.task, job.payload, arrival_options(traced))
    return ArrivalHandle(client, job.id)


def enqueue_in_transaction_sync(
    client: Client, connection: object, request: JobRequest[ResultT]
) -> JobHandle[ResultT]:
    store = _require_transactional(client.opened())
    with client.traced(request) as traced:
        job = traced.job
        store.send_in_transaction_sync(connection, job.id, job.task, job.payload, arrival_options(traced))
    return ArrivalHandle(client, job.id)


def arrival_options(request: JobRequest[Any]) -> bytes:
    """Returns the options of an arrival as JSON, including those of the task. Options that are None are left
    out."""
    job = request.job
    fields = {name: getattr(job, name) for name in _ARRIVAL_FIELDS}
    if job.delay:
        fields["delay"] = job.delay  # counted from its arrival by the store's clock
    options = {"queue": request.queue} | {name: value for name, value in fields.items() if value is not None}
    return msgspec.json.encode(options)


def _require_transactional(store: Store) -> TransactionalStore:
    if isinstance(store, TransactionalStore):
        return store
    raise ConfigurationError(
        "connection: this store is not in a database that you could have a transaction in; use a "
        "postgresql:// store, or send the job after your commit without connection="
    )


P = ParamSpec("P")
R = TypeVar("R")


class Task(Generic[P, R]):
    """A function decorated with `@app.task`: `await describe.enqueue(songs)` sends a job.

    Call the task itself to run the function directly, for example in a test."""

    __slots__ = ("_client", "_make", "_options", "definition")

    def __init__(
        self, client: Client, definition: TaskDefinition, options: CheckedJobOptions | None = None
    ) -> None:
        self.definition = definition
        self._client = client
        self._make = client.requests.make
        self._options = options or default_options(definition)

    def __repr__(self) -> str:
        return f"<Task {self.name} on queue {self._options.queue!r}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.definition.handler(*args, **kwargs)

    @property
    def name(self) -> str:
        """The name of the task in the store."""
        return self.definition.name

    @property
    def options(self) -> CheckedJobOptions:
        """The options that jobs of this task get."""
        return self._options

    @property
    def client(self) -> Client:
        """The client that sends the jobs of this task."""
        return self._client

    def using(self, **options: Unpack[JobOptions]) -> Task[P, R]:
        """Returns the task with other options for its jobs: `describe.using(priority=1,
        delay=60).enqueue(songs)`."""
        return Task(self._client, self.definition, with_options(self._options, options))

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Sends a job and returns its handle. The arguments are those of the handler, without its context.

        Returns when the store has the job, or raises within 5 s. Invalid arguments raise before anything is
        sent."""
        request = self._make(self.definition, self._options, args, kwargs)
        if self._options.connection is not None:
            return await enqueue_in_transaction(self._client, self._options.connection, request)
        return await self._client.enqueue(request)

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Like `enqueue`, for programs without an event loop.

        Do not call it on the thread of a running event loop. With SQLite it blocks that loop for one commit;
        with a store that has no blocking methods it raises ConfigurationError."""
        request = self._make(self.definition, self._options, args, kwargs)
        if self._options.connection is not None:
            return enqueue_in_transaction_sync(self._client, self._options.connection, request)
        return self._client.enqueue_sync(request)

    def job(self, *args: P.args, **kwargs: P.kwargs) -> JobRequest[R]:
        """Returns a job request for `enqueue_many`, without sending it. Raises InvalidJob if the option
        `connection` is set."""
        if self._options.connection is not None:
            raise InvalidJob("connection: enqueue_many has a call of its own; use enqueue for each job")
        return cast("JobRequest[R]", self._make(self.definition, self._options, args, kwargs))
