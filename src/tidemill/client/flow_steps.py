"""A step of a flow that is being built, checked where it is written."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

import msgspec

from tidemill.client.task import Task
from tidemill.core.graph import Each, Node, OnFailure, Work, problem_with_step_name
from tidemill.errors import ConfigurationError, InvalidPayload, PayloadTooLarge
from tidemill.flows.failure import Failure
from tidemill.tasks.payload import resolved_hints

if TYPE_CHECKING:
    from tidemill.client.flows import Flow
    from tidemill.client.options import Options

R_co = TypeVar("R_co", covariant=True)

_LISTS = (list, tuple, set, frozenset, Sequence, Collection)


class Whole:
    """What `whole` makes: an argument of `flow.map` that every job gets as it is."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def whole(value: Any) -> Any:
    """In `flow.map`, an argument that is not mapped though it is a step or a list: each job gets all of it.
    `flow.map(speak, line=lines, voices=whole(voices))`."""
    return Whole(value)


class Step(Generic[R_co]):
    """A step of a flow, as `flow.add` and `flow.map` answer it. Given to another step as an argument, it is
    its result."""

    __slots__ = (
        "_after",
        "_arguments",
        "_compensation",
        "_each",
        "_on_failure",
        "_reads",
        "_task",
        "flow",
        "name",
    )

    def __init__(self, flow: Flow, name: str, task: Task[Any, Any]) -> None:
        self.flow, self.name, self._task = flow, name, task
        self._arguments: dict[str, msgspec.Raw] = {}
        self._reads: dict[str, Step[Any]] = {}
        self._each: tuple[str, Step[Any] | tuple[msgspec.Raw, ...]] | None = None
        self._after: list[Step[Any]] = []
        self._on_failure = OnFailure.FAIL
        self._compensation: Task[Any, Any] | None = None

    def __repr__(self) -> str:
        return f"<Step {self.name} of flow {self.flow.name!r}>"

    @property
    def task(self) -> Task[Any, Any]:
        return self._task

    @property
    def mapped(self) -> bool:
        """Whether it has a job for each element of a list."""
        return self._each is not None

    @property
    def parents(self) -> tuple[Step[Any], ...]:
        """The steps it waits for."""
        mapped = () if self._each is None or not isinstance(self._each[1], Step) else (self._each[1],)
        return *self._reads.values(), *self._after, *mapped

    def named(self, name: str) -> Step[R_co]:
        """Call the step something else than its task."""
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

    def after(self, *steps: Step[Any]) -> Step[R_co]:
        """Wait for other steps without taking anything from them."""
        self.flow.refuse_if_sent()
        for step in steps:
            self._check_step("after", step)
        known = len(self._after)
        self._after += steps
        if self._follows_itself():
            try:
                self.flow.check()  # says which steps go round
            finally:
                del self._after[known:]
        return self

    @overload
    def on_failure(self, what: Literal["fail", "continue"]) -> Step[R_co]: ...
    @overload
    def on_failure(self, *, compensate: Task[[Failure], Any]) -> Step[R_co]: ...
    def on_failure(
        self, what: str | None = None, *, compensate: Task[[Failure], Any] | None = None
    ) -> Step[R_co]:
        """What becomes of the flow when a job of this step has failed for good. "fail", as it is if nothing
        is said: nothing new is started, and the flow fails. "continue": the flow goes on, and the result
        reads as None. `compensate=task`: that task runs in its place, and its result stands for it."""
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

    def node(self) -> Node:
        """As it is kept."""
        each = None
        if self._each is not None:
            argument, over = self._each
            mapped = Each(argument=argument, step=over.name) if isinstance(over, Step) else None
            each = mapped or Each(argument=argument, items=typing.cast("tuple[msgspec.Raw, ...]", over))
        return Node(
            name=self.name,
            work=self._work(self._task),
            arguments=self._arguments,
            reads={argument: step.name for argument, step in self._reads.items()},
            after=tuple(dict.fromkeys(step.name for step in self._after)),
            each=each,
            on_failure=self._on_failure,
            compensation=None if self._compensation is None else self._work(self._compensation),
        )

    def give(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, mapped: bool) -> None:
        """Its arguments: what is known, what other steps return, and what it is mapped over."""
        try:
            given = self._task.definition.payload.bound(args, kwargs)
            over = _mapped(given) if mapped else None
            known: dict[str, Any] = {}
            for argument, value in given.items():
                one = value.value if isinstance(value, Whole) else value
                if argument == over:
                    self._each = (argument, self._over(argument, one))
                elif isinstance(one, Step):
                    self._check_step(argument, one)
                    self._check_read(argument, one)
                    self._reads[argument] = one
                else:
                    known[argument] = one
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

    def _over(self, argument: str, value: Any) -> Step[Any] | tuple[msgspec.Raw, ...]:
        if isinstance(value, Step):
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

    def _encoded(self, known: dict[str, Any]) -> dict[str, msgspec.Raw]:
        for argument, value in known.items():
            inside = value.values() if isinstance(value, Mapping) else value
            if isinstance(inside, Collection) and any(isinstance(one, Step) for one in inside):
                raise self._refusal(
                    f"argument {argument!r}: holds a step inside; a step is an argument of its own, or what "
                    "flow.map maps over"
                )
        definition = self._task.definition
        payload = definition.payload.only(known).encode((), known)
        if len(payload) > definition.max_bytes:
            raise PayloadTooLarge(
                f"{self._where}: its arguments have {len(payload)} bytes, the limit is "
                f"{definition.max_bytes}; store the data elsewhere and give a reference to it"
            )
        return msgspec.json.decode(payload, type=dict[str, msgspec.Raw])

    def _check_step(self, argument: str, step: object) -> None:
        if not isinstance(step, Step):
            raise self._refusal(f"{argument}: must be a step of this flow, is {step!r}")
        if step.flow is not self.flow:
            raise self._refusal(
                f"{argument}: step {step.name!r} is of another flow, {step.flow.name!r}; add it to this one"
            )

    def _check_read(self, argument: str, step: Step[Any]) -> None:
        definition = step.task.definition
        if "return" not in resolved_hints(definition.handler):
            raise self._refusal(
                f"argument {argument!r} is the result of step {step.name!r}, whose task {definition.name!r} "
                "does not say what it returns; annotate it with what can be read from JSON"
            )
        if definition.result.hint in {None, type(None)}:
            raise self._refusal(
                f"argument {argument!r} is the result of step {step.name!r}, whose task {definition.name!r} "
                f"returns None; return a value, or wait for it with .after({step.name})"
            )

    def _check_list(self, argument: str, step: Step[Any]) -> None:
        self._check_read(argument, step)
        hint = step.task.definition.result.hint
        kind = typing.get_origin(hint) or hint
        if not step.mapped and hint is not Any and kind not in _LISTS:
            raise self._refusal(
                f"argument {argument!r} is mapped over the result of step {step.name!r}, whose task returns "
                f"{inspect.formatannotation(hint)}: that is no list"
            )

    def _check_compensation(self, task: object) -> None:
        if not isinstance(task, Task):
            raise self._refusal(f"on_failure: compensate must be a task, is {task!r}")
        hints = task.definition.payload.hints
        if list(hints.values()) != [Failure]:
            raise self._refusal(
                f"on_failure: the task {task.name!r} must take one argument, a Failure: "
                "`async def compensate(failure: Failure)`"
            )
        self.check_options(task, self.flow.refused_options)

    def _work(self, task: Task[Any, Any]) -> Work:
        options, definition = task.options, task.definition
        urgent = options.priority != definition.priority or self.flow.priority is None
        return Work(
            task=task.name,
            queue=options.queue,
            priority=options.priority if urgent else typing.cast("int", self.flow.priority),
            delay=options.delay,
            at=options.at,
            expires=options.expires,
            timeout=options.timeout,
            key=options.key if isinstance(options.key, str) else None,
            cost=_cost(options),
            trace=self.flow.client.trace_here() if options.trace is None else options.trace,
            tags=options.tags,
        )

    def _follows_itself(self) -> bool:
        """Asked with every `after`: it looks at no more than what comes before the step."""
        seen: set[int] = set()
        left = list(self.parents)
        while left:
            step = left.pop()
            if step is self:
                return True
            if id(step) not in seen:
                seen.add(id(step))
                left += step.parents
        return False

    @property
    def _where(self) -> str:
        return f"flow {self.flow.name!r}: step {self.name!r}"

    def _refusal(self, sentence: str) -> ConfigurationError:
        return ConfigurationError(f"{self._where}: {sentence}")


def _mapped(given: Mapping[str, Any]) -> str:
    """The one argument that is mapped: a step, or a list when there is none."""
    steps = [argument for argument, value in given.items() if isinstance(value, Step)]
    lists = [argument for argument, value in given.items() if isinstance(value, list | tuple)]
    found = steps or lists
    if len(found) != 1:
        which = ", ".join(found) or "none"
        raise InvalidPayload(
            f"flow.map maps one argument, a step or a list, and there are {len(found)} ({which}); wrap what "
            "every job is to get as it is in whole(…)"
        )
    return found[0]


def _cost(options: Options) -> dict[str, float | dict[str, float]] | None:
    """As data: a pool by its name."""
    if options.cost is None:
        return None
    return {
        getattr(name, "name", name): dict(value) if isinstance(value, Mapping) else value
        for name, value in options.cost.items()
    }
