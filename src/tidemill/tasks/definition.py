"""A registered function with everything the client and the worker need to know of it."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.core.job import DEFAULT_PRIORITY
from tidemill.core.names import MAX_NAME
from tidemill.core.retry import Retry
from tidemill.core.uniqueness import Unique
from tidemill.errors import ConfigurationError, InvalidJob
from tidemill.tasks.context import Context
from tidemill.tasks.payload import PayloadCodec, ResultCodec, resolved_hints

if TYPE_CHECKING:
    from tidemill.tasks.batches import BatchRule
    from tidemill.tasks.pools import Cost, PoolUse

DEFAULT_TIMEOUT = 15 * 60.0
WARN_BYTES = 1024
MAX_BYTES = 1024 * 1024

Handler = Callable[..., Any]
Codecs = tuple[PayloadCodec, ResultCodec]
Middleware = Callable[[Context, Callable[[], Awaitable[Any]]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class TaskDefinition:
    """`key`, `unique` and `cost` are computed from the task's arguments when a job is made. The first of
    `pools` is the provider the handler calls. A task with `batch` gets a list of what its jobs carry; `cost`
    is what one of them adds to the call. `paid` says that results cost money though no pool meters them."""

    name: str
    handler: Handler
    payload: PayloadCodec
    result: ResultCodec
    takes_context: bool
    is_async: bool
    queue: str = "default"
    priority: int = DEFAULT_PRIORITY
    retry: Retry = field(default_factory=Retry)
    timeout: float = DEFAULT_TIMEOUT
    isolate: bool = False
    expires: float | None = None
    key: Callable[..., str] | None = None
    unique: Callable[..., Unique] | Unique | None = None
    pools: tuple[PoolUse, ...] = ()
    cost: Callable[..., Cost] | Cost | None = None
    batch: BatchRule | None = None
    paid: bool = False
    warn_bytes: int = WARN_BYTES
    max_bytes: int = MAX_BYTES

    @property
    def costs_money(self) -> bool:
        return self.paid or bool(self.pools)


def _codecs(handler: Handler, takes_context: bool) -> Codecs:
    return PayloadCodec.of(handler, skip_first=takes_context), ResultCodec.of(handler)


def define(
    handler: Handler,
    *,
    name: str | None = None,
    pool: Any = None,
    codecs: Callable[[Handler, bool], Codecs] = _codecs,
    **options: Any,
) -> TaskDefinition:
    """Read a function's signature; refuse, naming the parameter, what cannot be a payload. `codecs` says
    how jobs carry it."""
    name = name or f"{_module_of(handler)}.{handler.__qualname__}"
    _require(0 < len(name) <= MAX_NAME, f"name: must have 1 to {MAX_NAME} characters, has {len(name)}")
    try:
        _refuse_generator(handler)
        takes_context = _takes_context(handler)
        payload, result = codecs(handler, takes_context)
        definition = TaskDefinition(
            name=name,
            handler=handler,
            payload=payload,
            result=result,
            takes_context=takes_context,
            is_async=inspect.iscoroutinefunction(handler),
            pools=_uses(pool),
            **options,
        )
    except ConfigurationError as error:
        raise ConfigurationError(f"task {name!r}: {error}") from None
    _check(definition)
    return definition


def _uses(pool: Any) -> tuple[PoolUse, ...]:
    if pool is None:
        return ()
    from tidemill.tasks.pools import read_uses  # with all there is to pools: most tasks have none

    return read_uses(pool)


def _module_of(handler: Handler) -> str:
    """A program run as a script calls its own module `__main__`, and a worker that imports it calls it by
    the file's name: both must mean the same task. Without a file there is nothing to import."""
    if handler.__module__ not in {"__main__", "__mp_main__"}:
        return handler.__module__
    names = getattr(inspect.unwrap(handler), "__globals__", {})
    if spec := names.get("__spec__"):  # run with -m
        return str(spec.name)
    file = str(names.get("__file__") or "<none>")
    return "__main__" if file.startswith("<") else Path(file).stem


def _refuse_generator(handler: Handler) -> None:
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise ConfigurationError(
            "the handler is a generator, whose body would never run; return the result instead of yielding"
        )


def _takes_context(handler: Handler) -> bool:
    hints = resolved_hints(handler)
    parameters = list(inspect.signature(handler).parameters.values())
    contexts = [parameter for parameter in parameters if hints.get(parameter.name) is Context]
    for parameter in parameters:
        if parameter not in contexts and Context in typing.get_args(hints.get(parameter.name)):
            raise ConfigurationError(
                f"parameter {parameter.name}: a handler always has a Context; annotate it plain Context"
            )
    if not contexts and parameters and parameters[0].name == "ctx" and "ctx" not in hints:
        raise ConfigurationError("parameter ctx: the annotation is missing; write `ctx: Context`")
    if contexts and (contexts != parameters[:1] or contexts[0].kind is inspect.Parameter.KEYWORD_ONLY):
        raise ConfigurationError(
            f"parameter {contexts[-1].name}: a handler takes one Context; put it first, before any `*`"
        )
    return bool(contexts)


def _check(task: TaskDefinition) -> None:
    checks: Mapping[str, bool] = {
        f"queue: must have 1 to {MAX_NAME} characters": 0 < len(task.queue) <= MAX_NAME,
        f"timeout: must be above 0 seconds, is {task.timeout}": 0 < task.timeout < float("inf"),
        f"max_bytes: must be above 0, is {task.max_bytes}": task.max_bytes > 0,
        f"paid: must be True or False, is {task.paid!r}": isinstance(task.paid, bool),
    }
    for sentence, fine in checks.items():
        _require(fine, f"task {task.name!r}: {sentence}")
    if problem := task.retry.problem() or _problem_with_functions(task) or _problem_with_cost(task):
        raise ConfigurationError(f"task {task.name!r}: {problem}")


def _problem_with_functions(task: TaskDefinition) -> str | None:
    """They are called with the task's arguments by name, however a job's caller gave them."""
    names = task.payload.names
    functions = [("key", task.key), ("unique", task.unique), ("cost", task.cost)]
    functions += [(f"pool {use.pool.name!r}: by", use.key) for use in task.pools]
    for option, function in functions:
        if not callable(function):
            continue
        try:
            signature = inspect.signature(function)
            signature.bind(**dict.fromkeys(names))
            is_callable = not any(map(_is_given_by_position, signature.parameters.values()))
        except TypeError:
            is_callable = False
        except ValueError:  # a builtin may have no signature to look at
            continue
        if not is_callable:
            return (
                f"{option}: the function is called with the task's parameters by their names "
                f"({', '.join(names) or 'there are none'}); take all of them, or **rest"
            )
    return None


def _is_given_by_position(parameter: inspect.Parameter) -> bool:
    """Python 3.13.0 binds such a parameter by its name where the call itself fails."""
    return parameter.kind is parameter.POSITIONAL_ONLY and parameter.default is parameter.empty


def _problem_with_cost(task: TaskDefinition) -> str | None:
    """What no job could be made of is refused here, a cost that depends on the arguments with them."""
    if task.cost is not None and not task.pools:
        return "cost: the task has no pool to spend it in; give it one with pool=…"
    if callable(task.cost) or not task.pools:
        return None
    from tidemill.tasks.costs import problem_with_call, problem_with_units, units_for

    for use in task.pools:
        try:
            units = units_for(use.pool, task.cost, task.pools)
        except InvalidJob as error:
            return str(error)
        if task.batch is None and (problem := problem_with_units(units, task.pools)):
            return f"cost: {problem}"
        if problem := problem_with_call(task, use.pool, units):
            return f"pool {use.pool.name!r}: {problem}"
    return None


def _require(fine: bool, problem: str) -> None:
    if not fine:
        raise ConfigurationError(problem)
