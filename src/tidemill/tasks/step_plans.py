"""One step as a handler asked for it: what is called, by which key its result is found, how it is written."""

from __future__ import annotations

import functools
import hashlib
import inspect
import typing
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, get_args, get_origin

import msgspec

from tidemill.core.checkpoints import LARGEST_RESULT, OnUnknown, Step
from tidemill.core.names import problem_with_name
from tidemill.errors import ConfigurationError, StepUnusable
from tidemill.tasks.payload import ResultCodec, encode_foreign

_OWN_WORDS = ("paid", "on_unknown")
_CODECS_KEPT = 256
_ENCODER = msgspec.json.Encoder(enc_hook=encode_foreign, order="deterministic")


class Plan(msgspec.Struct, frozen=True):
    step: Step
    call: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    codec: ResultCodec
    paid: bool
    on_unknown: OnUnknown

    @property
    def is_async(self) -> bool:
        return _is_async(self.call)

    def made(self) -> Any:
        """The call itself."""
        return self.call(*self.args, **self.kwargs)

    def encode(self, value: Any) -> bytes:
        """What is stored. When that cannot be done the call has been made: the job fails for good instead
        of paying again and again for something it can never keep."""
        try:
            result = self.codec.encode(value) or b"null"
        except Exception as error:
            raise StepUnusable(self._unusable(f"its result cannot be written as JSON: {error}")) from error
        if len(result) > LARGEST_RESULT:
            size = f"its result has {len(result):,} bytes as JSON, {LARGEST_RESULT:,} can be kept"
            raise StepUnusable(self._unusable(f"{size}; keep it elsewhere and return a reference"))
        return result

    def decode(self, result: bytes) -> Any:
        try:
            return self.codec.decode(result)
        except Exception as error:
            raise StepUnusable(
                f"step {self.step.name!r}: its result is kept, but is not what {_name(self.call)} says it "
                f"returns: {error}; correct the annotation and retry the job, which uses what is kept"
            ) from error

    def _unusable(self, problem: str) -> str:
        made = "its call was made and may have been paid for" if self.paid else "its call was made"
        return f"step {self.step.name!r}: {problem}; {made}, so it is not made again until the job is retried"


def planned(name: str, call: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Plan:
    """Everything that can be wrong is told before anything is called."""
    if not isinstance(name, str):
        raise ConfigurationError(f"step: the first argument must be its name, a text, is {name!r}")
    try:
        return _planned(name, call, args, dict(kwargs))
    except ConfigurationError as error:
        raise ConfigurationError(f"step {name!r}: {error}") from None


def _planned(name: str, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Plan:
    if problem := problem_with_name("name", name):
        raise ConfigurationError(problem)
    paid, on_unknown = _options(kwargs)
    if inspect.iscoroutine(call):
        call.close()
    if not callable(call):
        raise ConfigurationError(
            f"what is called must be a function, with its arguments apart: ctx.step({name!r}, function, …), "
            f"is {type(call).__name__}"
        )
    while isinstance(call, functools.partial):
        args, kwargs, call = (*call.args, *args), {**call.keywords, **kwargs}, call.func
    arguments = _bound(call, args, kwargs)
    step = Step(name, _digest(arguments))
    codec = _codec(getattr(call, "__func__", call))
    return Plan(step, call, args, kwargs, codec, paid, on_unknown)


def _options(kwargs: dict[str, Any]) -> tuple[bool, OnUnknown]:
    paid, on_unknown = kwargs.pop("paid", False), kwargs.pop("on_unknown", None)
    if not isinstance(paid, bool):
        raise ConfigurationError(f"paid: must be True or False, is {paid!r}")
    if on_unknown not in (None, "retry", "park"):
        raise ConfigurationError(f'on_unknown: must be "retry" or "park", is {on_unknown!r}')
    if on_unknown is not None and not paid:
        raise ConfigurationError("on_unknown: only a paid step can end unknown; say paid=True as well")
    return paid, on_unknown or "retry"


def _bound(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """By the parameters' names, so that it does not matter how they were given. What is left to its default
    stays out: a parameter that is added later changes no key."""
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):  # written in C
        return {"args": args, **kwargs}
    for word in _OWN_WORDS:
        if word in signature.parameters:
            raise ConfigurationError(
                f"{_name(call)} has a parameter {word!r}, which is a word of ctx.step itself; give it by "
                "functools.partial to a function of another signature, or rename it"
            )
    try:
        return dict(signature.bind(*args, **kwargs).arguments)
    except TypeError as error:
        raise ConfigurationError(f"{_name(call)}: {error}") from None


def _digest(arguments: dict[str, Any]) -> str:
    written = b",".join(
        b"%s:%s" % (_ENCODER.encode(name), _written(name, arguments[name])) for name in arguments
    )
    return hashlib.sha256(written).hexdigest()[:32]


def _written(name: str, value: Any) -> bytes:
    try:
        return _ENCODER.encode(value)
    except Exception as error:  # noqa: BLE001 - encoding runs a user's own methods
        raise ConfigurationError(
            f"parameter {name}: cannot be written as JSON, which its result is found by: {error}; give the "
            "step data, and let the function find clients and connections itself"
        ) from None


@functools.lru_cache(_CODECS_KEPT)
def _codec(call: Callable[..., Any]) -> ResultCodec:
    return ResultCodec.for_type(_returned(call))


def _returned(call: Callable[..., Any]) -> Any:
    """Only what it returns: its parameters may be of types that exist for an editor alone."""
    function = call if hasattr(call, "__annotations__") else getattr(type(call), "__call__", call)  # noqa: B004 - an object that is called
    hints = getattr(function, "__annotations__", {})
    if "return" not in hints:
        return Any
    lone: Any = lambda: None  # noqa: E731 - something that has annotations
    lone.__annotations__ = {"return": hints["return"]}
    try:
        names = getattr(inspect.unwrap(function), "__globals__", {})
        hint = typing.get_type_hints(lone, globalns=names, include_extras=True)["return"]
    except (NameError, TypeError) as error:
        raise ConfigurationError(f"{_name(call)}: what it returns cannot be resolved: {error}") from None
    return get_args(hint)[-1] if get_origin(hint) in (Awaitable, Coroutine) else hint


def _is_async(call: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(getattr(call, "__call__", None))  # noqa: B004 - an object that is called


def _name(call: Callable[..., Any]) -> str:
    return getattr(call, "__qualname__", None) or repr(call)
