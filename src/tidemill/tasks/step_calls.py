"""One `ctx.step` call: its function, arguments and result, and the requests that it sends to the store."""

from __future__ import annotations

import functools
import hashlib
import inspect
import typing
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, get_args, get_origin

import msgspec

from tidemill.core.checkpoints import MAX_RESULT_BYTES, OnUnknown, StepKey, StepVerdict
from tidemill.core.validation import problem_with_name
from tidemill.errors import ConfigurationError, StepUnusable
from tidemill.tasks.payload import ResultCodec, encode_model


class StepBeginRequest(msgspec.Struct, frozen=True, tag="step begin request"):
    """Sent before the function of a paid step is called: asks the store to record that the call begins."""

    step: StepKey
    on_unknown: OnUnknown


class StepLookupRequest(msgspec.Struct, frozen=True, tag="step lookup request"):
    """Sent before a step without `paid=True` is called: asks the worker for the stored result of the step."""

    step: StepKey


class StepForgetRequest(msgspec.Struct, frozen=True, tag="step forget request"):
    """Sent when a paid call failed and surely cost nothing: asks the store to delete the call's record."""

    step: StepKey
    number: int


class StepSaveRequest(msgspec.Struct, frozen=True, tag="step save request"):
    step: StepKey
    number: int
    result: bytes
    paid: bool


StepRequest = StepBeginRequest | StepLookupRequest | StepForgetRequest | StepSaveRequest


class StepReply(msgspec.Struct, frozen=True, tag="step reply"):
    verdict: StepVerdict
    result: bytes | None = None
    number: int = 0


_RESERVED_PARAMETERS = ("paid", "on_unknown")
_MAX_CACHED_CODECS = 256
_ENCODER = msgspec.json.Encoder(enc_hook=encode_model, order="deterministic")


class StepCall(msgspec.Struct, frozen=True):
    step: StepKey
    call: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    codec: ResultCodec
    paid: bool
    on_unknown: OnUnknown

    @property
    def is_async(self) -> bool:
        return _is_async(self.call)

    def invoke(self) -> Any:
        """Calls the function of the step and returns its result; a coroutine if the function is async."""
        return self.call(*self.args, **self.kwargs)

    def encode(self, value: Any) -> bytes:
        """Returns the result as JSON for the store. Raises StepUnusable if the result is not JSON data or is
        too large.

        The job then fails for good, because a retry would pay again."""
        try:
            result = self.codec.encode(value) or b"null"
        except Exception as error:
            raise StepUnusable(self._unusable(f"its result cannot be written as JSON: {error}")) from error
        if len(result) > MAX_RESULT_BYTES:
            size = f"its result has {len(result):,} bytes as JSON, {MAX_RESULT_BYTES:,} can be kept"
            raise StepUnusable(self._unusable(f"{size}; keep it elsewhere and return a reference"))
        return result

    def decode(self, result: bytes) -> Any:
        try:
            return self.codec.decode(result)
        except Exception as error:
            raise StepUnusable(
                f"step {self.step.name!r}: its result is kept, but is not what "
                f"{_function_name(self.call)} says it returns: {error}; correct the annotation and retry the "
                "job, which uses what is kept"
            ) from error

    def _unusable(self, problem: str) -> str:
        invoke = "its call was made and may have been paid for" if self.paid else "its call was made"
        return (
            f"step {self.step.name!r}: {problem}; {invoke}, so it is not made again until the job is retried"
        )


def prepare_step_call(name: str, call: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> StepCall:
    """Returns the checked step call; nothing is called yet. Raises ConfigurationError if the name, an option
    or an argument is invalid."""
    if not isinstance(name, str):
        raise ConfigurationError(f"step: the first argument must be its name, a text, is {name!r}")
    try:
        return _prepare(name, call, args, dict(kwargs))
    except ConfigurationError as error:
        raise ConfigurationError(f"step {name!r}: {error}") from None


def _prepare(name: str, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> StepCall:
    if problem := problem_with_name("name", name):
        raise ConfigurationError(problem)
    paid, on_unknown = _take_options(kwargs)
    if inspect.iscoroutine(call):
        call.close()
    if not callable(call):
        raise ConfigurationError(
            f"what is called must be a function, with its arguments apart: ctx.step({name!r}, function, …), "
            f"is {type(call).__name__}"
        )
    while isinstance(call, functools.partial):
        args, kwargs, call = (*call.args, *args), {**call.keywords, **kwargs}, call.func
    arguments = _bind_arguments(call, args, kwargs)
    step = StepKey(name, _hash_arguments(arguments))
    codec = _result_codec(getattr(call, "__func__", call))
    return StepCall(step, call, args, kwargs, codec, paid, on_unknown)


def _take_options(kwargs: dict[str, Any]) -> tuple[bool, OnUnknown]:
    paid, on_unknown = kwargs.pop("paid", False), kwargs.pop("on_unknown", None)
    if not isinstance(paid, bool):
        raise ConfigurationError(f"paid: must be True or False, is {paid!r}")
    if on_unknown not in (None, "retry", "park"):
        raise ConfigurationError(f'on_unknown: must be "retry" or "park", is {on_unknown!r}')
    if on_unknown is not None and not paid:
        raise ConfigurationError("on_unknown: only a paid step can end unknown; say paid=True as well")
    return paid, on_unknown or "retry"


def _bind_arguments(
    call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Returns the arguments by parameter name, so that positional and keyword calls identify the same step.
    Defaults are left out."""
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):  # written in C
        return {"args": args, **kwargs}
    for word in _RESERVED_PARAMETERS:
        if word in signature.parameters:
            raise ConfigurationError(
                f"{_function_name(call)} has a parameter {word!r}, which is a word of ctx.step itself; "
                "give it by functools.partial to a function of another signature, or rename it"
            )
    try:
        # Without defaults: a new parameter with a default keeps stored results valid.
        return dict(signature.bind(*args, **kwargs).arguments)
    except TypeError as error:
        raise ConfigurationError(f"{_function_name(call)}: {error}") from None


def _hash_arguments(arguments: dict[str, Any]) -> str:
    encoded = b",".join(
        b"%s:%s" % (_ENCODER.encode(name), _encode_argument(name, arguments[name])) for name in arguments
    )
    return hashlib.sha256(encoded).hexdigest()[:32]


def _encode_argument(name: str, value: Any) -> bytes:
    try:
        return _ENCODER.encode(value)
    except Exception as error:  # noqa: BLE001 - encoding runs a user's own methods
        raise ConfigurationError(
            f"parameter {name}: cannot be written as JSON, which its result is found by: {error}; give the "
            "step data, and let the function find clients and connections itself"
        ) from None


@functools.lru_cache(_MAX_CACHED_CODECS)
def _result_codec(call: Callable[..., Any]) -> ResultCodec:
    return ResultCodec.for_type(_return_type(call))


def _return_type(call: Callable[..., Any]) -> Any:
    """Returns the function's annotated return type; Any without one. Ignores the parameter annotations."""
    function = call if hasattr(call, "__annotations__") else getattr(type(call), "__call__", call)  # noqa: B004 - a callable object
    hints = getattr(function, "__annotations__", {})
    if "return" not in hints:
        return Any
    stub: Any = lambda: None  # noqa: E731 - an object with annotations
    stub.__annotations__ = {"return": hints["return"]}
    try:
        names = getattr(inspect.unwrap(function), "__globals__", {})
        hint = typing.get_type_hints(stub, globalns=names, include_extras=True)["return"]
    except (NameError, TypeError) as error:
        sentence = f"{_function_name(call)}: what it returns cannot be resolved: {error}"
        raise ConfigurationError(sentence) from None
    return get_args(hint)[-1] if get_origin(hint) in (Awaitable, Coroutine) else hint


def _is_async(call: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(getattr(call, "__call__", None))  # noqa: B004 - a callable object


def _function_name(call: Callable[..., Any]) -> str:
    return getattr(call, "__qualname__", None) or repr(call)
