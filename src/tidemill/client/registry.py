"""What `@app.task` takes, and how it is checked before a job can meet it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypedDict, TypeVar, overload

from tidemill.client.options import Options, with_options
from tidemill.client.task import Task
from tidemill.core.names import refuse_unknown
from tidemill.core.retry import Retry
from tidemill.core.uniqueness import Unique
from tidemill.errors import ConfigurationError, InvalidJob
from tidemill.tasks.context import Context
from tidemill.tasks.definition import TaskDefinition, define
from tidemill.times import read_seconds

if TYPE_CHECKING:
    from tidemill.tasks.batches import Failed, OnError
    from tidemill.tasks.pools import Cost, Pool, PoolUse

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


Awaited = Coroutine[Any, Any, R]


class TaskOptions(TypedDict, total=False):
    """`key`, `unique` and `cost` may be functions of the task's arguments. `pool` is what the handler's
    call is metered by; of several the first is the provider it calls. `paid=True` says that a result costs
    money though no pool meters it: the queue keeps it longer."""

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


class Decorator(Protocol):
    """`@app.task(…)`: the context is not part of what a caller passes, and it does not
    matter to them whether the handler is async."""

    @overload
    def __call__(self, handler: Callable[Concatenate[Context, P], Awaited[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, handler: Callable[P, Awaited[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, handler: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, handler: Callable[P, R], /) -> Task[P, R]: ...


class BatchTaskOptions(TypedDict, total=False):
    """max_units: a call takes so much of each unit at most, as its jobs' `item_cost` adds up.
    linger: seconds a job waits for others to share its call.
    on_error: what becomes of a call that raised. "bisect" finds the bad item by halves, "singles" runs
    each job alone, "fail" charges all of them with it.
    cost: what every call costs beside its items.
    item_cost: what a job adds to its call; as `key` and `unique`, it may be a function of one item."""

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
    """`@app.batch_task(…)`: its handler takes a list, a caller gives one item and gets one result."""

    @overload
    def __call__(
        self, handler: Callable[[Context, list[T]], Awaited[Sequence[R | Failed]]], /
    ) -> Task[[T], R]: ...
    @overload
    def __call__(self, handler: Callable[[list[T]], Awaited[Sequence[R | Failed]]], /) -> Task[[T], R]: ...
    @overload
    def __call__(self, handler: Callable[[Context, list[T]], Sequence[R | Failed]], /) -> Task[[T], R]: ...
    @overload
    def __call__(self, handler: Callable[[list[T]], Sequence[R | Failed]], /) -> Task[[T], R]: ...


def define_task(handler: Callable[..., Any], options: Mapping[str, Any]) -> TaskDefinition:
    """A definition, or a ConfigurationError that names the task, the option and the remedy."""
    if not (inspect.isfunction(handler) or inspect.ismethod(handler)):
        raise ConfigurationError(
            f"task: {handler!r} is not a function; decorate one with @app.task or @app.task(queue=…)"
        )
    refuse_unknown(options, TaskOptions.__annotations__, "task")
    try:
        return define(handler, **_checked(options))
    except InvalidJob as error:
        raise ConfigurationError(f"task {options.get('name') or handler.__qualname__!r}: {error}") from None


def define_batch_task(
    handler: Callable[..., Any], max_items: int, options: Mapping[str, Any]
) -> TaskDefinition:
    """As `define_task`."""
    from tidemill.tasks.batches import define_batch  # with all there is to pools: most programs have none

    if not (inspect.isfunction(handler) or inspect.ismethod(handler)):
        raise ConfigurationError(
            f"task: {handler!r} is not a function; decorate one with @app.batch_task(max_items=…)"
        )
    refuse_unknown(options, BatchTaskOptions.__annotations__, "batch_task")
    try:
        return define_batch(handler, max_items=max_items, **_checked(options))
    except InvalidJob as error:
        raise ConfigurationError(f"task {options.get('name') or handler.__qualname__!r}: {error}") from None


def refuse_duplicate(known: TaskDefinition | None, new: TaskDefinition) -> None:
    if known is not None:
        raise ConfigurationError(
            f"task name {new.name!r} is taken: {_where(known)} has it, {_where(new)} wants it; "
            "give one of them another name with @app.task(name=…)"
        )


def _where(task: TaskDefinition) -> str:
    return f"{task.handler.__module__}.{task.handler.__qualname__}"


def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
    checked: dict[str, Any] = dict(options)
    for name in ("timeout", "expires"):
        if checked.get(name) is not None:
            checked[name] = read_seconds(name, checked[name], InvalidJob)
    shared: dict[str, Any] = {name: checked[name] for name in _OF_JOBS_TOO if name in checked}
    if isinstance(checked.get("unique"), Unique):
        shared["unique"] = checked["unique"]
    with_options(Options(queue="default"), shared)
    for name, (wanted, fits) in _KINDS.items():
        if name in checked and not fits(checked[name]):
            raise InvalidJob(f"{name}: must be {wanted}, is {checked[name]!r}")
    return checked


_OF_JOBS_TOO = ("queue", "priority", "timeout", "expires")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
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
