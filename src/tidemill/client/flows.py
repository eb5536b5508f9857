"""Builds a flow and sends it: `flow.add` and `flow.map` are its steps, `await flow.enqueue()` begins it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from msgspec.structs import replace

from tidemill.client.enqueuer import DEADLINE, FIRST_PAUSE, LONGEST_PAUSE
from tidemill.client.flow_handle import FlowHandle
from tidemill.client.flow_steps import Step
from tidemill.client.portal import refuse_on_a_loop
from tidemill.client.task import Task
from tidemill.core.courses import Advance, Advanced
from tidemill.core.flow_jobs import COMPENSATION, job_id
from tidemill.core.graph import Graph, decode, encode, problem_with
from tidemill.core.job import problem_with_priority
from tidemill.core.names import MAX_NAME, problem_with_name
from tidemill.core.numbers import is_number
from tidemill.errors import ConfigurationError, StoreUnavailable
from tidemill.flows.advancing import beginning
from tidemill.flows.telling import tell_ended
from tidemill.telemetry.flow_events import FlowBegun
from tidemill.times import read_seconds

if TYPE_CHECKING:
    from tidemill.client.beginnings import Beginnings
    from tidemill.client.client import Client

P = ParamSpec("P")
R = TypeVar("R")

LARGEST_INDEX = 999_999
RECORD_BYTES = 1024 * 1024

REFUSED_OPTIONS = {
    "unique": "it is one job of its flow already; take it away with task.using(unique=None)",
    "id": "its id is made of the flow, the step and a number, so that it exists once",
    "connection": "its job is made by a worker when the steps before it are done",
}


class Flow:
    """A graph of jobs, as `app.flow` begins it. An argument that is a step is that step's result, and the
    step a dependency:

        flow = app.flow("dub", key=video)
        audio = flow.add(extract_audio, video=video)
        lines = flow.add(transcribe, audio=audio)
        said = flow.map(speak, line=lines)
        flow.add(mux, video=video, speech=said)
        await flow.enqueue()
    """

    refused_options: Mapping[str, str] = REFUSED_OPTIONS

    def __init__(
        self,
        client: Client,
        name: str,
        *,
        key: str | None = None,
        priority: int | None = None,
        timeout: float | timedelta | None = None,
        keep: float | timedelta | None = None,
    ) -> None:
        self._client, self.name, self.key, self.priority = client, name, key, priority
        self._timeout = None if timeout is None else _duration(name, "timeout", timeout, above=0)
        self._keep = None if keep is None else _duration(name, "keep", keep)
        _check(name, key, priority)
        self.id = f"{name}/{key if key is not None else client.requests.new_id()}"
        self.steps: list[Step[Any]] = []
        self._is_sent = False
        if problem := problem_with_name("key", self.id):
            raise ConfigurationError(f"flow {name!r}: {problem}, with the name before it")

    def __repr__(self) -> str:
        return f"<Flow {self.id} with {len(self.steps)} steps>"

    @property
    def client(self) -> Client:
        """What sends it."""
        return self._client

    def add(self, task: Task[..., R], /, *args: Any, **kwargs: Any) -> Step[R]:
        """A step that is one job. Its arguments are those of the task, and may be other steps."""
        return self._add(task, args, kwargs, mapped=False)

    def map(self, task: Task[..., R], /, *args: Any, **kwargs: Any) -> Step[R]:
        """A step that is one job for each element of a list: of what another step returns, or of one given
        here. One argument is mapped; another that is a step is wrapped in `whole(…)`. Given to another step
        it is the list of all results."""
        return self._add(task, args, kwargs, mapped=True)

    def refuse_if_sent(self) -> None:
        """Who changes a flow that was sent would change nothing."""
        if self._is_sent:
            raise ConfigurationError(
                f"flow {self.name!r}: was sent, and goes on as it was then; begin another with app.flow(…)"
            )

    def check(self) -> None:
        """Refuses, naming the step, what could never run."""
        graph = self._graph()
        if problem := problem_with(graph):
            raise ConfigurationError(f"flow {self.name!r}: {problem}")
        for step in self.steps:
            longest = job_id(self.id, step.name + COMPENSATION, LARGEST_INDEX if step.mapped else 0)
            if len(longest) > MAX_NAME:
                raise ConfigurationError(
                    f"flow {self.name!r}: step {step.name!r}: the ids of its jobs would have {len(longest)} "
                    f"characters, and may have {MAX_NAME}; shorten the key or the name of the step"
                )

    async def enqueue(self) -> FlowHandle:
        """Begin it: the jobs of the steps that wait for nothing go in with it. With a key that was used
        before, `existing` is true and nothing is sent. Sending the same flow again after an error begins it
        once. Returns or raises within 5 s."""
        graph = self._checked()
        session = await self._client.session()
        advance = await beginning(session.store, self._client.tasks, self.id, self.name, graph)
        answer = await self._insist(session.beginnings, advance)
        self._is_sent = True
        ours = _is_of(graph, answer)
        existing = self.key is not None and not ours
        self._tell_begun(answer, existing=existing, ours=ours)
        return FlowHandle(self._client, self.id, existing=existing)

    def enqueue_sync(self) -> FlowHandle:
        """`enqueue` for programs without an event loop."""
        refuse_on_a_loop("enqueue")
        return self._client.run_sync(self.enqueue)

    def _tell_begun(self, answer: Advanced, *, existing: bool, ours: bool) -> None:
        """One that has gone on since, while no answer came, was ended by a worker, which tells."""
        signals, steps = self._client.signals, len(self.steps)
        if signals.wants(FlowBegun):
            signals.emit(FlowBegun(flow=self.id, name=self.name, steps=steps, existing=existing))
        if ours and answer.course is not None and answer.course.revision == 1:
            tell_ended(signals, None, answer.course)

    def _add(
        self, task: Task[..., R], args: tuple[Any, ...], kwargs: Mapping[str, Any], *, mapped: bool
    ) -> Step[R]:
        if not isinstance(task, Task):
            raise ConfigurationError(
                f"flow {self.name!r}: a step is a task with its arguments, flow.add(describe, songs=…); "
                f"{task!r} is no task"
            )
        self.refuse_if_sent()
        step: Step[R] = Step(self, self._free_name(task.name), task)
        step.check_options(task, REFUSED_OPTIONS)
        step.give(args, kwargs, mapped=mapped)
        self.steps.append(step)
        return step

    def _free_name(self, task: str) -> str:
        short = task.replace("/", ".").replace(":", ".").rstrip(COMPENSATION).rpartition(".")[2] or "step"
        taken = {step.name for step in self.steps}
        numbers = (f"{short}-{number}" for number in range(2, len(taken) + 3))
        return next(name for name in (short, *numbers) if name not in taken)

    def _graph(self) -> Graph:
        nodes = tuple(step.node() for step in self.steps)
        return Graph(nodes=nodes, key=self.key, keep=self._keep, timeout=self._timeout)

    def _checked(self) -> Graph:
        self.check()
        graph = replace(self._graph(), sent=self._client.requests.new_id())
        if (size := len(encode(graph))) > RECORD_BYTES:
            raise ConfigurationError(
                f"flow {self.name!r}: its steps have {size} bytes, and may have {RECORD_BYTES}; store the "
                "data elsewhere and give references to it, or return a list from a step and map that"
            )
        return graph

    async def _insist(self, beginnings: Beginnings, advance: Advance) -> Advanced:
        loop, pause = asyncio.get_running_loop(), FIRST_PAUSE
        deadline = loop.time() + DEADLINE
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    answer = await beginnings.begin(advance)
            except (TimeoutError, StoreUnavailable) as error:
                if loop.time() + pause > deadline:
                    raise StoreUnavailable(
                        f"the store could not be reached for {DEADLINE:g} s "
                        f"({str(error) or 'it did not answer'}); flow {self.id} may or may not have begun: "
                        "enqueue it again, it begins once"
                    ) from error
            else:
                return answer
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)


def _is_of(graph: Graph, answer: Advanced) -> bool:
    """Sent again because no answer came, it may have begun the first time."""
    if answer.done or answer.course is None:
        return answer.done
    return decode(answer.course.record).sent == graph.sent


def _check(name: Any, key: Any, priority: Any) -> None:
    for field, value in (("name", name), ("key", "" if key is None else key)):
        if not isinstance(value, str):
            raise ConfigurationError(f"flow: {field}: must be a string, is {value!r}")
    if (problem := problem_with_name("name", name)) or "/" in name:
        raise ConfigurationError(f"flow {name!r}: {problem or 'name: must not hold a slash'}")
    if key == "":
        raise ConfigurationError(
            f"flow {name!r}: key: must not be empty; leave it out for a flow without one"
        )
    if priority is not None:
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise ConfigurationError(f"flow {name!r}: priority: must be a whole number, is {priority!r}")
        if problem := problem_with_priority(priority):
            raise ConfigurationError(f"flow {name!r}: {problem}")


def _duration(name: str, field: str, value: Any, above: float | None = None) -> float:
    seconds = read_seconds(f"flow {name!r}: {field}", value, ConfigurationError)
    if not is_number(seconds, 0) or seconds == above:
        more = "above 0" if above == 0 else "0 or more"
        raise ConfigurationError(f"flow {name!r}: {field}: must be a number of seconds {more}, is {seconds}")
    return seconds
