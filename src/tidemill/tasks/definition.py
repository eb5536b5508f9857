"""The definition of a registered task: its handler and options. Also applies middleware and decodes JSON
arguments."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tidemill.core.jobs import DEFAULT_PRIORITY
from tidemill.core.retry import Retry
from tidemill.core.unique_keys import Unique
from tidemill.core.validation import MAX_NAME_CHARS
from tidemill.errors import ConfigurationError, InvalidJob, InvalidPayload
from tidemill.tasks.context import Context
from tidemill.tasks.payload import PayloadCodec, ResultCodec, resolve_hints

if TYPE_CHECKING:
    from tidemill.tasks.batches import BatchRule
    from tidemill.tasks.pools import Cost, PoolUse


DEFAULT_TIMEOUT_SECONDS = 15 * 60.0
WARN_PAYLOAD_BYTES = 1024
MAX_PAYLOAD_BYTES = 1024 * 1024

Handler = Callable[..., Any]
Codecs = tuple[PayloadCodec, ResultCodec]
Middleware = Callable[[Context, Callable[[], Awaitable[Any]]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class TaskDefinition:
    """A registered task: its handler, its codecs and its options.

    - `key`, `unique`, `cost`: each may be a function of the job's arguments.
    - `pools`: the pools of the task. The handler calls the provider of the first one.
    - `batch`: if set, the handler gets the items of several jobs, and `cost` is the cost of one item.
    - `paid`: True if results cost money although the task has no pool."""

    name: str
    handler: Handler
    payload: PayloadCodec
    result: ResultCodec
    takes_context: bool
    is_async: bool
    queue: str = "default"
    priority: int = DEFAULT_PRIORITY
    retry: Retry = field(default_factory=Retry)
    timeout: float = DEFAULT_TIMEOUT_SECONDS
    isolate: bool = False
    expires: float | None = None
    key: Callable[..., str] | None = None
    unique: Callable[..., Unique] | Unique | None = None
    pools: tuple[PoolUse, ...] = ()
    cost: Callable[..., Cost] | Cost | None = None
    batch: BatchRule | None = None
    paid: bool = False
    warn_bytes: int = WARN_PAYLOAD_BYTES
    max_bytes: int = MAX_PAYLOAD_BYTES

    @property
    def costs_money(self) -> bool:
        return self.paid or bool(self.pools)


def _codecs(handler: Handler, takes_context: bool) -> Codecs:
    return PayloadCodec.of(handler, skip_first=takes_context), ResultCodec.of(handler)


def make_task_definition(
    handler: Handler,
    *,
    name: str | None = None,
    pool: Any = None,
    codecs: Callable[[Handler, bool], Codecs] = _codecs,
    **options: Any,
) -> TaskDefinition:
    """Returns the definition of a task, read from the handler's signature. Raises ConfigurationError if JSON
    cannot represent a parameter.

    `codecs`: a function that returns the payload and result codecs of the handler."""
    name = name or f"{_handler_module(handler)}.{handler.__qualname__}"
    _require(
        0 < len(name) <= MAX_NAME_CHARS, f"name: must have 1 to {MAX_NAME_CHARS} characters, has {len(name)}"
    )
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
            pools=_read_pools(pool),
            **options,
        )
    except ConfigurationError as error:
        raise ConfigurationError(f"task {name!r}: {error}") from None
    _check_definition(definition)
    return definition


def _read_pools(pool: Any) -> tuple[PoolUse, ...]:
    if pool is None:
        return ()
    from tidemill.tasks.pools import read_pool_uses  # loads all of pools: most tasks need none

    return read_pool_uses(pool)


def _handler_module(handler: Handler) -> str:
    """Returns the name by which a worker can import the handler's module, also for a script that runs as
    `__main__`."""
    # A worker imports a script by its file name; both must use the same task name.
    if handler.__module__ not in {"__main__", "__mp_main__"}:
        return handler.__module__
    names = getattr(inspect.unwrap(handler), "__globals__", {})
    if spec := names.get("__spec__"):  # started with -m
        return str(spec.name)
    file = str(names.get("__file__") or "<none>")
    return "__main__" if file.startswith("<") else Path(file).stem


def _refuse_generator(handler: Handler) -> None:
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise ConfigurationError(
            "the handler is a generator, whose body would never run; return the result instead of yielding"
        )


def _takes_context(handler: Handler) -> bool:
    hints = resolve_hints(handler)
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


def _check_definition(task: TaskDefinition) -> None:
    checks: Mapping[str, bool] = {
        f"queue: must have 1 to {MAX_NAME_CHARS} characters": 0 < len(task.queue) <= MAX_NAME_CHARS,
        f"timeout: must be above 0 seconds, is {task.timeout}": 0 < task.timeout < float("inf"),
        f"max_bytes: must be above 0, is {task.max_bytes}": task.max_bytes > 0,
        f"paid: must be True or False, is {task.paid!r}": isinstance(task.paid, bool),
    }
    for sentence, fine in checks.items():
        _require(fine, f"task {task.name!r}: {sentence}")
    if problem := task.retry.problem() or _problem_with_functions(task) or _problem_with_cost(task):
        raise ConfigurationError(f"task {task.name!r}: {problem}")


def _problem_with_functions(task: TaskDefinition) -> str | None:
    """Returns why a function (`key`, `unique`, `cost`, pool key) rejects the task's parameters, or None."""
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
        except ValueError:  # a builtin may have no signature
            continue
        if not is_callable:
            return (
                f"{option}: the function is called with the task's parameters by their names "
                f"({', '.join(names) or 'there are none'}); take all of them, or **rest"
            )
    return None


def _is_given_by_position(parameter: inspect.Parameter) -> bool:
    """True if the parameter is positional-only and has no default."""
    # `Signature.bind` of Python 3.13.0 wrongly allows passing this parameter by name.
    return parameter.kind is parameter.POSITIONAL_ONLY and parameter.default is parameter.empty


def _problem_with_cost(task: TaskDefinition) -> str | None:
    """Returns why a constant cost could never be granted; None if it could. A cost function is checked for
    each job instead."""
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


STAYS_IN_WORKER = "stays_in_worker"
"""Attribute of middleware that runs in the worker even if the handler runs in a child process."""

HandlerCall = Callable[[], Awaitable[Any]]


def split_middleware(middleware: Sequence[Middleware]) -> tuple[Sequence[Middleware], Sequence[Middleware]]:
    """Returns the middleware that runs in the worker, and the middleware that runs in the handler's process.

    Middleware with the attribute `stays_in_worker` runs in the worker."""
    in_worker = tuple(layer for layer in middleware if hasattr(layer, STAYS_IN_WORKER))
    # The handler may read context variables that the second group sets.
    return in_worker, tuple(layer for layer in middleware if layer not in in_worker)


def apply_middleware(middleware: Sequence[Middleware], context: Context, run: HandlerCall) -> HandlerCall:
    """Returns a function that runs the handler inside its middleware. The first middleware is the
    outermost."""
    for around in reversed(middleware):
        run = functools.partial(around, context, run)
    return run


TaskArguments = tuple[tuple[Any, ...], dict[str, Any]]


def decode_json_arguments(task: TaskDefinition, payload: bytes) -> TaskArguments:
    """Returns the positional and keyword arguments in a JSON payload, as the handler's own types."""
    try:
        msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidPayload(
            f"task {task.name!r}: the payload is not JSON: {error}; {describe_parameters(task)}"
        ) from None
    except RecursionError:
        raise InvalidPayload(f"task {task.name!r}: the payload is nested too deeply; flatten it") from None
    try:
        return task.payload.decode_strictly(payload)
    except InvalidPayload as error:
        raise InvalidPayload(f"task {task.name!r}: {error}; {describe_parameters(task)}") from None


def describe_parameters(task: TaskDefinition) -> str:
    """Returns a text such as `it takes to: str, copies: int`."""
    named = ", ".join(map(_format_parameter, task.payload.parameters))
    return f"it takes {named}" if named else "it takes no arguments"


def _format_parameter(parameter: inspect.Parameter) -> str:
    """Formats a parameter as in the code; an annotation given as a string has no quotes."""
    if not isinstance(parameter.annotation, str):
        return str(parameter)
    default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
    return f"{parameter.name}: {parameter.annotation}{default}"
