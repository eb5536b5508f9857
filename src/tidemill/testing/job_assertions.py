"""Queries and assertions about the jobs of a test. They are sync functions. This works because the methods of
the memory store never suspend."""

from __future__ import annotations

from typing import Any, TypeVar

from tidemill.client.job_handle import JobHandle
from tidemill.client.task import Task
from tidemill.clock import Clock
from tidemill.contract.reader import LogLine
from tidemill.core.filters import Filter
from tidemill.core.jobs import Job
from tidemill.core.states import State
from tidemill.errors import ConfigurationError, InvalidPayload, JobNotFound
from tidemill.tasks.definition import TaskDefinition
from tidemill.testing.failure_messages import decode_arguments, format_not_enqueued, format_unexpected_enqueue
from tidemill.testing.kit_environment import KitEnvironment, run_without_waiting

R = TypeVar("R")

_PAGE_SIZE = 1000


class JobAssertions:
    """Queries and assertions about all jobs of a test, in any state. The store of the kit never prunes
    jobs."""

    def __init__(self, environment: KitEnvironment) -> None:
        self._environment = environment
        self._app = environment.app

    @property
    def now(self) -> float:
        """The wall time of the test, in Unix seconds."""
        return self._environment.clock.wall()

    @property
    def clock(self) -> Clock:
        """The clock of the test; pass it to other code that needs the time, such as a simulated provider."""
        return self._environment.clock

    def enqueued(
        self,
        task: Task[..., Any] | str | None = None,
        *,
        queue: str | None = None,
        state: State | str | None = None,
        key: str | None = None,
        tag: str | None = None,
    ) -> list[Job]:
        """Returns the jobs of the test that match all given filters, oldest first. Without filters, returns
        all jobs."""
        name = task.name if isinstance(task, Task) else task
        states = None if state is None else (_parse_state(state),)
        return self._find(Filter(task=name, queue=queue, states=states, key=key, tag=tag))

    def assert_enqueued(self, task: Task[..., Any], *args: Any, **kwargs: Any) -> Job:
        """Asserts that a job of the task was enqueued with these arguments, and returns the newest such job.
        Without arguments, any job of the task matches."""
        found = self._matching(task, args, kwargs)
        if not found:
            raise AssertionError(format_not_enqueued(task.definition, args, kwargs, self.enqueued()))
        return found[-1]

    def assert_not_enqueued(self, task: Task[..., Any], *args: Any, **kwargs: Any) -> None:
        if found := self._matching(task, args, kwargs):
            raise AssertionError(format_unexpected_enqueue(task.definition, args, kwargs, found))

    def job(self, job: JobHandle[Any] | str) -> Job:
        """Returns the job as it is stored now. Raises JobNotFound if the test has no such job."""
        id_ = job if isinstance(job, str) else job.id
        found = self._find(Filter(ids=(id_,)))
        if not found:
            raise JobNotFound(f"there is no job {id_!r} in this test")
        return found[0]

    def arguments(self, job: JobHandle[Any] | Job | str) -> dict[str, Any]:
        """Returns the arguments that the job was enqueued with, by parameter name."""
        record = job if isinstance(job, Job) else self.job(job)
        return decode_arguments(record)

    def log(self, job: JobHandle[Any] | str) -> list[str]:
        """Returns the lines that the handler wrote with `ctx.log`."""
        lines: list[LogLine] = run_without_waiting(self._environment.store_handle.logs(self.job(job).id))
        return [line.line for line in lines]

    def result(self, job: JobHandle[R]) -> R:
        """Returns the handler's return value. Raises AssertionError with the reason if the job has not
        succeeded."""
        record = self.job(job)
        definition = self._app.tasks.get(record.task)
        if record.state is not State.DONE or definition is None:
            raise AssertionError(self._environment.not_done(record))
        result: R = definition.result.decode(record.result)
        return result

    def _find(self, job_filter: Filter) -> list[Job]:
        found: list[Job] = []
        page = run_without_waiting(self._environment.store_handle.find(job_filter, _PAGE_SIZE))
        found.extend(page.jobs)
        while page.cursor is not None:
            page = run_without_waiting(
                self._environment.store_handle.find(job_filter, _PAGE_SIZE, page.cursor)
            )
            found.extend(page.jobs)
        return found[::-1]

    def _matching(self, task: Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Job]:
        jobs = self.enqueued(task)
        if not args and not kwargs:
            return jobs
        definition = task.definition
        expected = definition.payload.decode(definition.payload.encode(args, kwargs))
        return [job for job in jobs if _decode_payload(definition, job) == expected]


def _parse_state(state: State | str) -> State:
    if state not in tuple(State):
        raise ConfigurationError(f"state: there is no state {state!r}; there are {', '.join(State)}")
    return State(state)


def _decode_payload(definition: TaskDefinition, job: Job) -> object:
    """Returns the decoded arguments of the job, or None if the payload is invalid for the task. Decoded
    arguments are never None, so a job with an invalid payload matches no assertion."""
    try:
        return definition.payload.decode(job.payload)
    except InvalidPayload:
        return None
