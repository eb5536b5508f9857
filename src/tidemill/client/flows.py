"""Builds and sends a flow: `flow.add` and `flow.map` add steps, `await flow.enqueue()` starts it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from msgspec.structs import replace

from tidemill.client.background_loop import refuse_on_loop
from tidemill.client.enqueuer import ENQUEUE_DEADLINE_SECONDS, FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS
from tidemill.client.flow_handle import FlowHandle
from tidemill.client.flow_steps import FlowStep
from tidemill.client.task import Task
from tidemill.core.documents import Advance, AdvanceResult
from tidemill.core.flow_graph import FlowGraph, decode_graph, encode_graph, problem_with_graph
from tidemill.core.jobs import COMPENSATION_SUFFIX, flow_job_id, problem_with_priority
from tidemill.core.validation import MAX_NAME_CHARS, is_number, problem_with_name
from tidemill.errors import ConfigurationError, StoreUnavailable
from tidemill.flows.advance import emit_flow_ended, make_first_advance
from tidemill.telemetry.job_events import FlowStarted
from tidemill.times import parse_seconds

if TYPE_CHECKING:
    from tidemill.client.client import Client
    from tidemill.client.enqueuer import FlowEnqueuer


P = ParamSpec("P")
R = TypeVar("R")

MAX_MAP_INDEX = 999_999
MAX_FLOW_BYTES = 1024 * 1024

REFUSED_OPTIONS = {
    "unique": "it is one job of its flow already; take it away with task.using(unique=None)",
    "id": "its id is made of the flow, the step and a number, so that it exists once",
    "connection": "its job is made by a worker when the steps before it are done",
}


class Flow:
    """A graph of jobs that is being built, created by `app.flow`. If an argument is a step, the new step
    depends on it and gets its result:

      flow = app.flow("dub", key=video)
      audio = flow.add(extract_audio, video=video)
      lines = flow.add(transcribe, audio=audio)
      said = flow.map(speak, line=lines)
      flow.add(mux, video=video, speech=said)
      await flow.enqueue()"""

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
        self._timeout = None if timeout is None else _read_duration(name, "timeout", timeout, above=0)
        self._keep = None if keep is None else _read_duration(name, "keep", keep)
        _check_arguments(name, key, priority)
        self.id = f"{name}/{key if key is not None else client.requests.new_id()}"
        self.steps: list[FlowStep[Any]] = []
        self._is_sent = False
        if problem := problem_with_name("key", self.id):
            raise ConfigurationError(f"flow {name!r}: {problem}, with the name before it")

    def __repr__(self) -> str:
        return f"<Flow {self.id} with {len(self.steps)} steps>"

    @property
    def client(self) -> Client:
        """The client that sends the flow."""
        return self._client

    def add(self, task: Task[..., R], /, *args: Any, **kwargs: Any) -> FlowStep[R]:
        """Adds a step with one job and returns the step. An argument may be another step; the job then gets
        the result of that step."""
        return self._add(task, args, kwargs, mapped=False)

    def map(self, task: Task[..., R], /, *args: Any, **kwargs: Any) -> FlowStep[R]:
        """Adds a step that runs the task once for each element of a list, and returns the step:
        `flow.map(speak, line=lines)`.

        One argument is the list: an earlier step whose result is a list, or a list given here. Each job gets
        one element of the list. To give all jobs the whole result of another step, pass `unmapped(step)`. A
        later step gets the list of all results."""
        return self._add(task, args, kwargs, mapped=True)

    def refuse_if_sent(self) -> None:
        """Raises ConfigurationError if the flow was already sent, because a change would have no effect."""
        if self._is_sent:
            raise ConfigurationError(
                f"flow {self.name!r}: was sent, and goes on as it was then; begin another with app.flow(…)"
            )

    def check(self) -> None:
        """Raises ConfigurationError if the flow could never run, for example because of a cycle. The message
        names the step."""
        graph = self._graph()
        if problem := problem_with_graph(graph):
            raise ConfigurationError(f"flow {self.name!r}: {problem}")
        for step in self.steps:
            longest = flow_job_id(
                self.id, step.name + COMPENSATION_SUFFIX, MAX_MAP_INDEX if step.mapped else 0
            )
            if len(longest) > MAX_NAME_CHARS:
                raise ConfigurationError(
                    f"flow {self.name!r}: step {step.name!r}: the ids of its jobs would have {len(longest)} "
                    f"characters, and may have {MAX_NAME_CHARS}; shorten the key or the name of the step"
                )

    async def enqueue(self) -> FlowHandle:
        """Sends the flow and starts the steps that depend on no other step. Returns or raises within 5 s.

        If a flow with the same name and key exists, nothing is sent, and the handle has `existing=True`.
        After an error you can send the same flow again; it starts only once."""
        graph = self._checked()
        session = await self._client.session()
        advance = await make_first_advance(session.store, self._client.tasks, self.id, self.name, graph)
        answer = await self._start_until_deadline(session.flow_enqueuer, advance)
        self._is_sent = True
        ours = _is_same_flow(graph, answer)
        existing = self.key is not None and not ours
        self._emit_flow_begun(answer, existing=existing, ours=ours)
        return FlowHandle(self._client, self.id, existing=existing)

    def enqueue_sync(self) -> FlowHandle:
        """`enqueue` for programs without an event loop."""
        refuse_on_loop("enqueue")
        return self._client.run_sync(self.enqueue)

    def _emit_flow_begun(self, answer: AdvanceResult, *, existing: bool, ours: bool) -> None:
        """Emits FlowStarted. Also emits FlowEnded if the flow has no job and so has ended already.

        - `answer`: the store's reply.
        - `ours`: True if this call created the flow."""
        signals, steps = self._client.signals, len(self.steps)
        if signals.wants(FlowStarted):
            signals.emit(FlowStarted(flow=self.id, name=self.name, steps=steps, existing=existing))
        # At a later revision a worker has advanced the flow, and emits its end.
        if ours and answer.document is not None and answer.document.revision == 1:
            emit_flow_ended(signals, None, answer.document)

    def _add(
        self, task: Task[..., R], args: tuple[Any, ...], kwargs: Mapping[str, Any], *, mapped: bool
    ) -> FlowStep[R]:
        if not isinstance(task, Task):
            raise ConfigurationError(
                f"flow {self.name!r}: a step is a task with its arguments, flow.add(describe, songs=…); "
                f"{task!r} is no task"
            )
        self.refuse_if_sent()
        step: FlowStep[R] = FlowStep(self, self._free_name(task.name), task)
        step.check_options(task, REFUSED_OPTIONS)
        step.give(args, kwargs, mapped=mapped)
        self.steps.append(step)
        return step

    def _free_name(self, task: str) -> str:
        short = (
            task.replace("/", ".").replace(":", ".").rstrip(COMPENSATION_SUFFIX).rpartition(".")[2] or "step"
        )
        taken = {step.name for step in self.steps}
        numbers = (f"{short}-{number}" for number in range(2, len(taken) + 3))
        return next(name for name in (short, *numbers) if name not in taken)

    def _graph(self) -> FlowGraph:
        nodes = tuple(step.node() for step in self.steps)
        return FlowGraph(nodes=nodes, key=self.key, keep=self._keep, timeout=self._timeout)

    def _checked(self) -> FlowGraph:
        self.check()
        graph = replace(self._graph(), sent=self._client.requests.new_id())
        if (size := len(encode_graph(graph))) > MAX_FLOW_BYTES:
            raise ConfigurationError(
                f"flow {self.name!r}: its steps have {size} bytes, and may have {MAX_FLOW_BYTES}; store the "
                "data elsewhere and give references to it, or return a list from a step and map that"
            )
        return graph

    async def _start_until_deadline(self, flow_enqueuer: FlowEnqueuer, advance: Advance) -> AdvanceResult:
        loop, pause = asyncio.get_running_loop(), FIRST_RETRY_SECONDS
        deadline = loop.time() + ENQUEUE_DEADLINE_SECONDS
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    answer = await flow_enqueuer.begin(advance)
            except (TimeoutError, StoreUnavailable) as error:
                if loop.time() + pause > deadline:
                    raise StoreUnavailable(
                        f"the store could not be reached for {ENQUEUE_DEADLINE_SECONDS:g} s "
                        f"({str(error) or 'it did not answer'}); flow {self.id} may or may not have begun: "
                        "enqueue it again, it begins once"
                    ) from error
            else:
                return answer
            await asyncio.sleep(pause)
            pause = min(pause * 2, MAX_RETRY_SECONDS)


def _is_same_flow(graph: FlowGraph, answer: AdvanceResult) -> bool:
    """True if this call of `enqueue` created the stored flow in `answer`, maybe in an earlier try whose reply
    was lost."""
    if answer.done or answer.document is None:
        return answer.done
    return decode_graph(answer.document.record).sent == graph.sent


def _check_arguments(name: Any, key: Any, priority: Any) -> None:
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


def _read_duration(name: str, field: str, value: Any, above: float | None = None) -> float:
    seconds = parse_seconds(f"flow {name!r}: {field}", value, ConfigurationError)
    if not is_number(seconds, 0) or seconds == above:
        more = "above 0" if above == 0 else "0 or more"
        raise ConfigurationError(f"flow {name!r}: {field}: must be a number of seconds {more}, is {seconds}")
    return seconds
