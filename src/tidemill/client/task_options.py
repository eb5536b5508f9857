"""The options of `@app.task` and `@app.batch_task`, and their checks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypedDict, TypeVar, overload

from tidemill.client.job_options import CheckedJobOptions, with_options
from tidemill.client.task import Task
from tidemill.core.retry import Retry
from tidemill.core.unique_keys import Unique
from tidemill.core.validation import refuse_unknown_options
from tidemill.errors import ConfigurationError, InvalidJob
from tidemill.tasks.context import Context
from tidemill.tasks.definition import TaskDefinition, make_task_definition
from tidemill.times import parse_seconds

if TYPE_CHECKING:
    from tidemill.tasks.batches import FailedItem, OnError
    from tidemill.tasks.pools import Cost, Pool, PoolUse


P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


HandlerCoroutine = Coroutine[Any, Any, R]


class TaskOptions(TypedDict, total=False):
    """The keyword options of `@app.task(…)`.

    - `key`, `unique`, `cost`: each may be a function of the task's arguments
    - `pool`: the pool that a job needs, or a list of pools; the handler calls the provider of the first pool
    - `paid`: True if a result costs money although the task has no pool; the queue then keeps results
      longer"""

    name: str
    queue: str
    priority: int
    retry: Retry
    timeout: float | timedelta
    isolate: bool
    expires: float | timedelta | None
    key: Callable[..., str] | None
    unique: Callable[..., Unique] | Unique | None
    pool: Pool | PoolUse | Sequence[Pool | PoolUse] | None
    cost: Callable[..., Cost] | Cost | None
    paid: bool
    warn_bytes: int
    max_bytes: int


class TaskDecorator(Protocol):
    """The type of the decorator `@app.task(…)`. The handler may be async or not. Callers of `enqueue` do not
    pass its `Context` parameter."""

    @overload
    def __call__(self, handler: Callable[Concatenate[Context, P], HandlerCoroutine[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, handler: Callable[P, HandlerCoroutine[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, handler: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, handler: Callable[P, R], /) -> Task[P, R]: ...


class BatchTaskOptions(TypedDict, total=False):
    """The keyword options of `@app.batch_task(…)`. `key`, `unique` and `item_cost` may be functions of one
    item.

    - `max_units`: the maximum of each unit per call, added up from the `item_cost` of its jobs.
    - `linger`: how many seconds a job waits for other jobs to share its call.
    - `on_error`: what happens when a call raises. "bisect" splits the call into halves to find the bad item,
      "singles" runs each job alone, "fail" fails all jobs of the call.
    - `cost`: the cost of a call without its items.
    - `item_cost`: the cost that each job adds to its call."""

    name: str
    queue: str
    priority: int
    retry: Retry
    timeout: float | timedelta
    isolate: bool
    expires: float | timedelta | None
    key: Callable[[Any], str] | None
    unique: Callable[[Any], Unique] | Unique | None
    pool: Pool | PoolUse | Sequence[Pool | PoolUse] | None
    cost: Cost | None
    item_cost: Callable[[Any], Cost] | Cost | None
    max_units: Mapping[str, float] | None
    linger: float | timedelta
    on_error: OnError
    paid: bool
    warn_bytes: int
    max_bytes: int


class BatchDecorator(Protocol):
    """The type of the decorator `@app.batch_task(…)`. The handler takes a list of items and returns a list of
    results. Each job has one item and one result."""

    @overload
    def __call__(
        self, handler: Callable[[Context, list[T]], HandlerCoroutine[Sequence[R | FailedItem]]], /
    ) -> Task[[T], R]: ...
    @overload
    def __call__(
        self, handler: Callable[[list[T]], HandlerCoroutine[Sequence[R | FailedItem]]], /
    ) -> Task[[T], R]: ...
    @overload
    def __call__(
        self, handler: Callable[[Context, list[T]], Sequence[R | FailedItem]], /
    ) -> Task[[T], R]: ...
    @overload
    def __call__(self, handler: Callable[[list[T]], Sequence[R | FailedItem]], /) -> Task[[T], R]: ...


def define_task(handler: Callable[..., Any], options: Mapping[str, Any]) -> TaskDefinition:
    """Returns the definition of a task. Raises ConfigurationError if an option is invalid; the message names
    the task, the option and the remedy."""
    if not (inspect.isfunction(handler) or inspect.ismethod(handler)):
        raise ConfigurationError(
            f"task: {handler!r} is not a function; decorate one with @app.task or @app.task(queue=…)"
        )
    refuse_unknown_options(options, TaskOptions.__annotations__, "task")
    try:
        return make_task_definition(handler, **_check_options(options))
    except InvalidJob as error:
        raise ConfigurationError(f"task {options.get('name') or handler.__qualname__!r}: {error}") from None


def define_batch_task(
    handler: Callable[..., Any], max_items: int, options: Mapping[str, Any]
) -> TaskDefinition:
    """Returns the definition of a batch task; see `define_task`."""
    from tidemill.tasks.batches import make_batch_definition

    if not (inspect.isfunction(handler) or inspect.ismethod(handler)):
        raise ConfigurationError(
            f"task: {handler!r} is not a function; decorate one with @app.batch_task(max_items=…)"
        )
    refuse_unknown_options(options, BatchTaskOptions.__annotations__, "batch_task")
    try:
        return make_batch_definition(handler, max_items=max_items, **_check_options(options))
    except InvalidJob as error:
        raise ConfigurationError(f"task {options.get('name') or handler.__qualname__!r}: {error}") from None


def refuse_duplicate(known: TaskDefinition | None, new: TaskDefinition) -> None:
    if known is not None:
        raise ConfigurationError(
            f"task name {new.name!r} is taken: {_handler_location(known)} has it, "
            f"{_handler_location(new)} wants it; give one of them another name with @app.task(name=…)"
        )


def _handler_location(task: TaskDefinition) -> str:
    return f"{task.handler.__module__}.{task.handler.__qualname__}"


def _check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    checked: dict[str, Any] = dict(options)
    for name in ("timeout", "expires"):
        if checked.get(name) is not None:
            checked[name] = parse_seconds(name, checked[name], InvalidJob)
    shared: dict[str, Any] = {name: checked[name] for name in _JOB_OPTION_NAMES if name in checked}
    if isinstance(checked.get("unique"), Unique):
        shared["unique"] = checked["unique"]
    with_options(CheckedJobOptions(queue="default"), shared)
    for name, (expected, fits) in _OPTION_CHECKS.items():
        if name in checked and not fits(checked[name]):
            raise InvalidJob(f"{name}: must be {expected}, is {checked[name]!r}")
    return checked


_JOB_OPTION_NAMES = ("queue", "priority", "timeout", "expires")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


_OPTION_CHECKS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "name": ("a string", lambda value: isinstance(value, str)),
    "retry": ("a Retry, such as Retry(attempts=3)", lambda value: isinstance(value, Retry)),
    "isolate": ("True or False", lambda value: isinstance(value, bool)),
    "key": ("a function of the task's arguments", lambda value: value is None or callable(value)),
    "unique": (
        "a Unique, or a function of the task's arguments that returns one",
        lambda value: value is None or isinstance(value, Unique) or callable(value),
    ),
    "cost": (
        'amounts by unit, such as {"tokens": 900}, or a function of the task\'s arguments that returns them',
        lambda value: value is None or isinstance(value, Mapping) or callable(value),
    ),
    "warn_bytes": ("a number of bytes above 0", _is_count),
    "max_bytes": ("a number of bytes above 0", _is_count),
}
