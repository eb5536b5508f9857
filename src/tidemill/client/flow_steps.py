"""The steps of a flow that is being built. Their methods check the arguments at once."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

import msgspec

from tidemill.client.task import Task
from tidemill.core.flow_graph import FanOut, JobTemplate, OnFailure, StepNode, problem_with_step_name
from tidemill.errors import ConfigurationError, InvalidPayload, PayloadTooLarge
from tidemill.flows.results import StepFailure
from tidemill.tasks.payload import resolve_hints

if TYPE_CHECKING:
    from tidemill.client.flows import Flow
    from tidemill.client.job_options import CheckedJobOptions


R_co = TypeVar("R_co", covariant=True)

_LIST_TYPES = (list, tuple, set, frozenset, Sequence, Collection)


class UnmappedArgument:
    """An argument of `flow.map` that every job gets unchanged. `unmapped` creates it."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def unmapped(value: Any) -> Any:
    """Wraps a step or list so that `flow.map` does not map it: each job gets the whole value.

    `flow.map(speak, line=lines, voices=unmapped(voices))`."""
    return UnmappedArgument(value)


class FlowStep(Generic[R_co]):
    """A step of a flow, returned by `flow.add` and `flow.map`. Pass it as an argument of a later step; the
    later step then gets the result of this step."""

    __slots__ = (
        "_after",
        "_arguments",
        "_compensation",
        "_fan_out",
        "_on_failure",
        "_reads",
        "_task",
        "flow",
        "name",
    )

    def __init__(self, flow: Flow, name: str, task: Task[Any, Any]) -> None:
        self.flow, self.name, self._task = flow, name, task
        self._arguments: dict[str, msgspec.Raw] = {}
        self._reads: dict[str, FlowStep[Any]] = {}
        self._fan_out: tuple[str, FlowStep[Any] | tuple[msgspec.Raw, ...]] | None = None
        self._after: list[FlowStep[Any]] = []
        self._on_failure = OnFailure.FAIL
        self._compensation: Task[Any, Any] | None = None

    def __repr__(self) -> str:
        return f"<Step {self.name} of flow {self.flow.name!r}>"

    @property
    def task(self) -> Task[Any, Any]:
        return self._task

    @property
    def mapped(self) -> bool:
        """True if the step has one job per element of a list (`flow.map`)."""
        return self._fan_out is not None

    @property
    def parents(self) -> tuple[FlowStep[Any], ...]:
        """The steps that this step waits for."""
        mapped = (
            () if self._fan_out is None or not isinstance(self._fan_out[1], FlowStep) else (self._fan_out[1],)
        )
        return *self._reads.values(), *self._after, *mapped

    def named(self, name: str) -> FlowStep[R_co]:
        """Renames the step and returns it. By default a step is named after its task."""
        self.flow.refuse_if_sent()
        if not isinstance(name, str) or (problem := problem_with_step_name(name)):
            shown = problem if isinstance(name, str) else f"name: must be a string, is {name!r}"
            raise ConfigurationError(f"flow {self.flow.name!r}: step {self.name!r}: {shown}")
        if any(step.name == name and step is not self for step in self.flow.steps):
            raise ConfigurationError(
                f"flow {self.flow.name!r}: step {self.name!r}: name: another step is called {name!r}"
            )
        self.name = name
        return self

    def after(self, *steps: FlowStep[Any]) -> FlowStep[R_co]:
        """Makes this step wait for `steps` without using their results. Returns this step."""
        self.flow.refuse_if_sent()
        for step in steps:
            self._check_step("after", step)
        known = len(self._after)
        self._after += steps
        if self._follows_itself():
            try:
                self.flow.check()  # its error names the cycle
            finally:
                del self._after[known:]
        return self

    @overload
    def on_failure(self, what: Literal["fail", "continue"]) -> FlowStep[R_co]: ...
    @overload
    def on_failure(self, *, compensate: Task[[StepFailure], Any]) -> FlowStep[R_co]: ...
    def on_failure(
        self, what: str | None = None, *, compensate: Task[[StepFailure], Any] | None = None
    ) -> FlowStep[R_co]:
        """Sets what happens when a job of this step has failed for good. Returns this step.

        - "fail" (the default): no new job starts, and the flow fails.
        - "continue": the flow continues, and the result of the job is None.
        - `compensate=task`: that task runs with a StepFailure, and its result replaces the result of the
          job."""
        self.flow.refuse_if_sent()
        if compensate is not None and what is None:
            self._check_compensation(compensate)
            self._on_failure, self._compensation = OnFailure.COMPENSATE, compensate
        elif what in {"fail", "continue"} and compensate is None:
            self._on_failure, self._compensation = OnFailure(what), None
        else:
            raise self._refusal(
                f'on_failure: must be "fail", "continue" or compensate=task, is {what or compensate!r}'
            )
        return self

    def node(self) -> StepNode:
        """Returns the step in the form that the store keeps."""
        return StepNode(
            name=self.name,
            work=self._work(self._task),
            arguments=self._arguments,
            reads={argument: step.name for argument, step in self._reads.items()},
            after=tuple(dict.fromkeys(step.name for step in self._after)),
            fan_out=self._stored_fan_out(),
            on_failure=self._on_failure,
            compensation=None if self._compensation is None else self._work(self._compensation),
        )

    def _stored_fan_out(self) -> FanOut | None:
        if self._fan_out is None:
            return None
        argument, over = self._fan_out
        if isinstance(over, FlowStep):
            return FanOut(argument=argument, step=over.name)
        return FanOut(argument=argument, items=over)

    def give(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, mapped: bool) -> None:
        """Sets the arguments of the step. Raises InvalidPayload or ConfigurationError if an argument does not
        fit the task.

        `mapped=True`: one argument is a list, and the step has one job per element."""
        try:
            arguments = self._task.definition.payload.bound(args, kwargs)
            over = _find_mapped_argument(arguments) if mapped else None
            known: dict[str, Any] = {}
            for argument, value in arguments.items():
                content = value.value if isinstance(value, UnmappedArgument) else value
                if argument == over:
                    self._fan_out = (argument, self._over(argument, content))
                elif isinstance(content, FlowStep):
                    self._check_step(argument, content)
                    self._check_read(argument, content)
                    self._reads[argument] = content
                else:
                    known[argument] = content
            self._arguments = self._encoded(known)
        except InvalidPayload as error:
            raise InvalidPayload(f"{self._where}: {error}") from None

    def check_options(self, task: Task[Any, Any], refused: Mapping[str, str]) -> None:
        options = task.options
        for option, why in refused.items():
            if getattr(options, option) is not None:
                raise self._refusal(f"{option}: a step cannot have it: {why}")
        if task.client is not self.flow.client:
            raise self._refusal(f"the task {task.name!r} is of another application")

    def _over(self, argument: str, value: Any) -> FlowStep[Any] | tuple[msgspec.Raw, ...]:
        if isinstance(value, FlowStep):
            self._check_step(argument, value)
            self._check_list(argument, value)
            return value
        codec = self._task.definition.payload.only([argument])
        items = []
        for number, item in enumerate(value):
            try:
                payload = codec.encode((), {argument: item})
            except InvalidPayload as error:
                raise InvalidPayload(f"element {number}: {error}") from None
            items.append(msgspec.json.decode(payload, type=dict[str, msgspec.Raw])[argument])
        return tuple(items)

    def _refuse_nested_steps(self, known: dict[str, Any]) -> None:
        for argument, value in known.items():
            inside = value.values() if isinstance(value, Mapping) else value
            if isinstance(inside, Collection) and any(isinstance(element, FlowStep) for element in inside):
                raise self._refusal(
                    f"argument {argument!r}: holds a step inside; a step is an argument of its own, or what "
                    "flow.map maps over"
                )

    def _encoded(self, known: dict[str, Any]) -> dict[str, msgspec.Raw]:
        self._refuse_nested_steps(known)
        definition = self._task.definition
        payload = definition.payload.only(known).encode((), known)
        if len(payload) > definition.max_bytes:
            raise PayloadTooLarge(
                f"{self._where}: its arguments have {len(payload)} bytes, the limit is "
                f"{definition.max_bytes}; store the data elsewhere and give a reference to it"
            )
        return msgspec.json.decode(payload, type=dict[str, msgspec.Raw])

    def _check_step(self, argument: str, step: object) -> None:
        if not isinstance(step, FlowStep):
            raise self._refusal(f"{argument}: must be a step of this flow, is {step!r}")
        if step.flow is not self.flow:
            raise self._refusal(
                f"{argument}: step {step.name!r} is of another flow, {step.flow.name!r}; add it to this one"
            )

    def _check_read(self, argument: str, step: FlowStep[Any]) -> None:
        definition = step.task.definition
        if "return" not in resolve_hints(definition.handler):
            raise self._refusal(
                f"argument {argument!r} is the result of step {step.name!r}, whose task {definition.name!r} "
                "does not say what it returns; annotate it with what can be read from JSON"
            )
        if definition.result.hint in {None, type(None)}:
            raise self._refusal(
                f"argument {argument!r} is the result of step {step.name!r}, whose task {definition.name!r} "
                f"returns None; return a value, or wait for it with .after({step.name})"
            )

    def _check_list(self, argument: str, step: FlowStep[Any]) -> None:
        self._check_read(argument, step)
        hint = step.task.definition.result.hint
        kind = typing.get_origin(hint) or hint
        if not step.mapped and hint is not Any and kind not in _LIST_TYPES:
            raise self._refusal(
                f"argument {argument!r} is mapped over the result of step {step.name!r}, whose task returns "
                f"{inspect.formatannotation(hint)}: that is no list"
            )

    def _check_compensation(self, task: object) -> None:
        if not isinstance(task, Task):
            raise self._refusal(f"on_failure: compensate must be a task, is {task!r}")
        hints = task.definition.payload.hints
        if list(hints.values()) != [StepFailure]:
            raise self._refusal(
                f"on_failure: the task {task.name!r} must take one argument, a StepFailure: "
                "`async def compensate(failure: StepFailure)`"
            )
        self.check_options(task, self.flow.refused_options)

    def _work(self, task: Task[Any, Any]) -> JobTemplate:
        options, definition = task.options, task.definition
        urgent = options.priority != definition.priority or self.flow.priority is None
        return JobTemplate(
            task=task.name,
            queue=options.queue,
            priority=options.priority if urgent else typing.cast("int", self.flow.priority),
            delay=options.delay,
            at=options.at,
            expires=options.expires,
            timeout=options.timeout,
            key=options.key if isinstance(options.key, str) else None,
            cost=_encode_cost(options),
            trace=self.flow.client.current_trace() if options.trace is None else options.trace,
            tags=options.tags,
        )

    def _follows_itself(self) -> bool:
        """True if the step is part of a cycle."""
        seen: set[int] = set()
        pending = list(self.parents)
        while pending:
            step = pending.pop()
            if step is self:
                return True
            if id(step) not in seen:
                seen.add(id(step))
                pending += step.parents
        return False

    @property
    def _where(self) -> str:
        return f"flow {self.flow.name!r}: step {self.name!r}"

    def _refusal(self, sentence: str) -> ConfigurationError:
        return ConfigurationError(f"{self._where}: {sentence}")


def _find_mapped_argument(arguments: Mapping[str, Any]) -> str:
    """Returns the name of the only argument that is a step; if no argument is a step, of the only list.
    Raises InvalidPayload if there is none or more than one."""
    steps = [argument for argument, value in arguments.items() if isinstance(value, FlowStep)]
    lists = [argument for argument, value in arguments.items() if isinstance(value, list | tuple)]
    found = steps or lists
    if len(found) != 1:
        named = ", ".join(found) or "none"
        raise InvalidPayload(
            f"flow.map maps one argument, a step or a list, and there are {len(found)} ({named}); wrap what "
            "every job is to get as it is in unmapped(…)"
        )
    return found[0]


def _encode_cost(options: CheckedJobOptions) -> dict[str, float | dict[str, float]] | None:
    """Returns the cost of the options with pool names instead of `Pool` objects; None if no cost is set."""
    if options.cost is None:
        return None
    return {
        getattr(name, "name", name): dict(value) if isinstance(value, Mapping) else value
        for name, value in options.cost.items()
    }
