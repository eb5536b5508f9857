"""What a test asks of the jobs there are. Plain calls: the store is in memory and awaits nothing."""

from __future__ import annotations

from typing import Any, TypeVar

from tidemill.client.handle import JobHandle
from tidemill.client.task import Task
from tidemill.clock import Clock
from tidemill.contract.reader import LogLine
from tidemill.core.filters import Filter
from tidemill.core.job import Job
from tidemill.core.states import State
from tidemill.errors import ConfigurationError, InvalidPayload, JobNotFound
from tidemill.tasks.definition import TaskDefinition
from tidemill.testing.place import Place, at_once
from tidemill.testing.wording import not_enqueued, shown_call, was_enqueued

R = TypeVar("R")

_PAGE = 1000


class Looking:
    """Every job of the test is found, in whatever state it is by now; none is pruned."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._app = place.app

    @property
    def now(self) -> float:
        """The wall time of the test, in Unix seconds."""
        return self._place.clock.wall()

    @property
    def clock(self) -> Clock:
        """The time of the test, for whatever else is to go by it, such as a simulated provider."""
        return self._place.clock

    def enqueued(
        self,
        task: Task[..., Any] | str | None = None,
        *,
        queue: str | None = None,
        state: State | str | None = None,
        key: str | None = None,
        tag: str | None = None,
    ) -> list[Job]:
        """The jobs that were enqueued, oldest first."""
        name = task.name if isinstance(task, Task) else task
        states = None if state is None else (_state(state),)
        return self._find(Filter(task=name, queue=queue, states=states, key=key, tag=tag))

    def assert_enqueued(self, task: Task[..., Any], *args: Any, **kwargs: Any) -> Job:
        """A job of the task was enqueued with these arguments, or, when none are given, with any.
        Answers the newest such job, for further questions (`.queue`, `.priority`, `.due`)."""
        found = self._matching(task, args, kwargs)
        if not found:
            raise AssertionError(not_enqueued(task.definition, args, kwargs, self.enqueued()))
        return found[-1]

    def assert_not_enqueued(self, task: Task[..., Any], *args: Any, **kwargs: Any) -> None:
        if found := self._matching(task, args, kwargs):
            raise AssertionError(was_enqueued(task.definition, args, kwargs, found))

    def job(self, job: JobHandle[Any] | str) -> Job:
        """The record as it is now."""
        id_ = job if isinstance(job, str) else job.id
        found = self._find(Filter(ids=(id_,)))
        if not found:
            raise JobNotFound(f"there is no job {id_!r} in this test")
        return found[0]

    def arguments(self, job: JobHandle[Any] | Job | str) -> dict[str, Any]:
        """What a job was enqueued with, by parameter."""
        record = job if isinstance(job, Job) else self.job(job)
        return shown_call(record)

    def log(self, job: JobHandle[Any] | str) -> list[str]:
        """The lines the handler wrote with `ctx.log`."""
        lines: list[LogLine] = at_once(self._place.look.logs(self.job(job).id))
        return [line.line for line in lines]

    def result(self, job: JobHandle[R]) -> R:
        """What the handler returned; an AssertionError with its traceback when it did not get there."""
        record = self.job(job)
        definition = self._app.tasks.get(record.task)
        if record.state is not State.DONE or definition is None:
            raise AssertionError(self._place.not_done(record))
        result: R = definition.result.decode(record.result)
        return result

    def _find(self, wanted: Filter) -> list[Job]:
        found: list[Job] = []
        page = at_once(self._place.look.find(wanted, _PAGE))
        found.extend(page.jobs)
        while page.cursor is not None:
            page = at_once(self._place.look.find(wanted, _PAGE, page.cursor))
            found.extend(page.jobs)
        return found[::-1]

    def _matching(self, task: Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Job]:
        jobs = self.enqueued(task)
        if not args and not kwargs:
            return jobs
        definition = task.definition
        wanted = definition.payload.decode(definition.payload.encode(args, kwargs))
        return [job for job in jobs if _decoded(definition, job) == wanted]


def _state(state: State | str) -> State:
    if state not in tuple(State):
        raise ConfigurationError(f"state: there is no state {state!r}; there are {', '.join(State)}")
    return State(state)


def _decoded(definition: TaskDefinition, job: Job) -> object:
    """None for what the task would refuse: nothing equals it."""
    try:
        return definition.payload.decode(job.payload)
    except InvalidPayload:
        return None
