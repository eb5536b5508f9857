"""A registered function as its callers see it."""

from __future__ import annotations

from typing import Any, Generic, ParamSpec, TypeVar, Unpack, cast

from tidemill.client import inside
from tidemill.client.client import Client
from tidemill.client.handle import JobHandle
from tidemill.client.options import JobOptions, Options, options_of, with_options
from tidemill.client.request import JobRequest
from tidemill.errors import InvalidJob
from tidemill.tasks.definition import TaskDefinition

P = ParamSpec("P")
R = TypeVar("R")


class Task(Generic[P, R]):
    """What `@app.task` makes of a function: `await describe.enqueue(songs)` sends a job.

    `P` are the handler's parameters without its context, `R` is what it returns. Calling the task
    calls the plain function, so that a handler's test needs no queue.
    """

    __slots__ = ("_client", "_make", "_options", "definition")

    def __init__(self, client: Client, definition: TaskDefinition, options: Options | None = None) -> None:
        self.definition = definition
        self._client = client
        self._make = client.requests.make
        self._options = options or options_of(definition)

    def __repr__(self) -> str:
        return f"<Task {self.name} on queue {self._options.queue!r}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.definition.handler(*args, **kwargs)

    @property
    def name(self) -> str:
        """What jobs in the store know the task by."""
        return self.definition.name

    @property
    def options(self) -> Options:
        """What its jobs are sent with."""
        return self._options

    @property
    def client(self) -> Client:
        """What sends the task's jobs."""
        return self._client

    def using(self, **options: Unpack[JobOptions]) -> Task[P, R]:
        """The same task with other options for the jobs made through it:
        `describe.using(priority=1, delay=60).enqueue(songs)`."""
        return Task(self._client, self.definition, with_options(self._options, options))

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Send a job, with the handler's own parameters. Returns when the store has it, or raises within
        5 s: an argument that does not fit is refused before anything is sent."""
        request = self._make(self.definition, self._options, args, kwargs)
        if self._options.connection is not None:
            return await inside.enqueue(self._client, self._options.connection, request)
        return await self._client.enqueue(request)

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """The same for programs without an event loop. On an event loop's thread it stops the loop
        for one commit, where the store has blocking verbs as SQLite does, and is refused elsewhere."""
        request = self._make(self.definition, self._options, args, kwargs)
        if self._options.connection is not None:
            return inside.enqueue_sync(self._client, self._options.connection, request)
        return self._client.enqueue_sync(request)

    def job(self, *args: P.args, **kwargs: P.kwargs) -> JobRequest[R]:
        """A job to be sent with others by `enqueue_many`, which takes no connection."""
        if self._options.connection is not None:
            raise InvalidJob("connection: enqueue_many has a call of its own; use enqueue for each job")
        return cast("JobRequest[R]", self._make(self.definition, self._options, args, kwargs))
