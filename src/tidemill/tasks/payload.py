"""Converts arguments and results to JSON and back, and checks them against the handler's annotations.

A payload is a JSON object with one member per parameter. A payload that is accepted at enqueue also decodes
at run time. pydantic models work if pydantic is installed."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self, cast

import msgspec
from msgspec.inspect import type_info

from tidemill.errors import ConfigurationError, InvalidPayload
from tidemill.tasks.annotations import (
    contains_objects,
    explain_decode_error,
    find_custom_types,
    find_unknown_member,
)

if TYPE_CHECKING:
    from msgspec.inspect import StructType, Type


def encode_model(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"objects of type {type(value).__name__} are not data")
    return dump(mode="json", warnings=False)  # a warning would quote the value; it is checked next


_ENCODER = msgspec.json.Encoder(enc_hook=encode_model)


_DECIMAL_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder(float_hook=Decimal)
_NUMBER_ENCODER = msgspec.json.Encoder(decimal_format="number")


def canonical_json(payload: bytes) -> bytes:
    r"""Returns the JSON without spaces and without \uXXXX escapes for letters. Numbers keep all digits."""
    # A text search in the store would not find escaped text.
    return _NUMBER_ENCODER.encode(_DECIMAL_DECODER.decode(payload))


class PayloadCodec:
    def __init__(self, signature: inspect.Signature, shape: type[msgspec.Struct]) -> None:
        self._bind = signature.bind
        self.parameters = tuple(signature.parameters.values())
        self.hints: Mapping[str, Any] = shape.__annotations__
        self.names = tuple(signature.parameters)
        self._kind = kind = cast("StructType", type_info(shape))
        self._objects = [field.name for field in kind.fields if contains_objects(field.type)]
        self._keyword_only = tuple(
            name for name, p in signature.parameters.items() if p.kind is p.KEYWORD_ONLY
        )
        self._decoder = msgspec.json.Decoder(shape, dec_hook=_decode_model)

    @classmethod
    def of(cls, handler: Callable[..., Any], *, skip_first: bool) -> Self:
        signature = inspect.signature(handler)
        parameters = list(signature.parameters.values())[1 if skip_first else 0 :]
        hints = resolve_hints(handler)
        fields = [_field(parameter, hints) for parameter in parameters]
        try:
            shape = msgspec.defstruct("payload", fields, forbid_unknown_fields=True, kw_only=True)
            codec = cls(signature.replace(parameters=parameters), shape)
        except TypeError as error:
            raise ConfigurationError(f"an annotation cannot be checked: {error}") from None
        for field in codec._kind.fields:
            _refuse_unreadable_types(f"parameter {field.name}", field.type)
        return codec

    def only(self, names: Collection[str]) -> PayloadCodec:
        """Returns a codec for the arguments in `names` only. A flow step uses it when its other arguments are
        results of steps that have not run yet."""
        parameters = [parameter for parameter in self.parameters if parameter.name in names]
        fields = [_field(parameter, self.hints) for parameter in parameters]
        shape = msgspec.defstruct("payload", fields, forbid_unknown_fields=True, kw_only=True)
        return PayloadCodec(inspect.Signature(parameters), shape)

    def schema(self) -> dict[str, Any]:
        """Returns the JSON Schema of a payload."""
        return msgspec.json.schema(self._decoder.type, schema_hook=_model_schema)

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        arguments = self.bound(args, kwargs)
        try:
            payload = _ENCODER.encode(arguments)
        except (TypeError, ValueError) as error:
            raise InvalidPayload(f"cannot be written as JSON: {error}") from None
        if self.names:
            self.check(payload)
        # An instance has only its fields; only values written as JSON are checked again.
        if any(isinstance(arguments.get(name), dict | list | tuple) for name in self._objects):
            self._refuse_unknown_members(payload)
        return payload

    def by_name(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns every argument by its parameter's name, including defaults."""
        bound = self._bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    def bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the given arguments by parameter name, without defaults. Raises InvalidPayload if they do
        not fit the signature."""
        if not kwargs and len(args) == len(self.names) and not self._keyword_only:
            return dict(zip(self.names, args, strict=True))  # same result as binding, but cheaper
        try:
            return self._bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidPayload(str(error)) from None

    def check(self, payload: bytes) -> msgspec.Struct:
        try:
            return self._decoder.decode(payload)
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
            raise InvalidPayload(explain_decode_error(str(error), self._kind)) from None

    def decode_strictly(self, payload: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Like `decode`, but also refuses unknown members of objects; for JSON from a person or another
        program."""
        arguments = self.decode(payload)
        if self._objects:
            self._refuse_unknown_members(payload)
        return arguments

    def _refuse_unknown_members(self, payload: bytes) -> None:
        values = msgspec.json.decode(payload)
        for field in self._kind.fields:
            if found := find_unknown_member(field.type, values.get(field.name), field.name):
                known = ", ".join(found.fields)
                raise InvalidPayload(
                    f"{found.path}: {found.owner} has no field {found.name!r}; it has {known}"
                )

    def decode(self, payload: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the positional and keyword arguments for the handler."""
        if not self.names and payload == b"{}":
            return (), {}
        values = self.check(payload)
        if not self._keyword_only:
            return msgspec.structs.astuple(values), {}
        positional = tuple(getattr(values, n) for n in self.names if n not in self._keyword_only)
        return positional, {name: getattr(values, name) for name in self._keyword_only}


class ResultCodec:
    def __init__(self, result_type: Any) -> None:
        self.hint = result_type
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(result_type, dec_hook=_decode_model)

    @classmethod
    def of(cls, handler: Callable[..., Any]) -> Self:
        return cls.for_type(resolve_hints(handler).get("return", Any))

    @classmethod
    def for_type(cls, hint: Any) -> Self:
        try:
            codec, kind = cls(hint), type_info(hint)
        except TypeError as error:
            raise ConfigurationError(f"return: the annotation cannot be read back: {error}") from None
        _refuse_unreadable_types("return", kind)
        return codec

    def encode(self, value: Any) -> bytes | None:
        return None if value is None else _ENCODER.encode(value)

    def decode(self, result: bytes | None) -> Any:
        return None if result is None else self._decoder.decode(result)


def resolve_hints(handler: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(handler, include_extras=True)
    except (NameError, TypeError) as error:
        raise ConfigurationError(f"an annotation cannot be resolved: {error}") from None


def _field(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> tuple[str, Any, Any]:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
        raise ConfigurationError(f"parameter {parameter}: a payload has named members; use plain parameters")
    default = msgspec.NODEFAULT if parameter.default is parameter.empty else _default(parameter)
    return parameter.name, hints.get(parameter.name, Any), default


def _default(parameter: inspect.Parameter) -> Any:
    value = parameter.default
    if isinstance(value, list | dict | set | bytearray):
        return msgspec.field(default_factory=value.copy)
    return value


def _refuse_unreadable_types(where: str, kind: Type) -> None:
    for custom in find_custom_types(kind):
        if not hasattr(custom, "model_validate"):
            name = getattr(custom, "__name__", str(custom))
            raise ConfigurationError(
                f"{where}: {name} cannot be read from JSON; make it a dataclass, a TypedDict, a "
                "msgspec.Struct or a pydantic model, or send an id (see docs/reference/payloads.md)"
            )


def _decode_model(model: type, value: Any) -> Any:
    validate = getattr(model, "model_validate", None)
    if validate is None:
        raise TypeError(f"objects of type {model.__name__} are not data")
    try:
        return validate(value)
    except ValueError as error:
        raise ValueError(_hide_input(error)) from None


def _model_schema(model: Any) -> dict[str, Any]:
    """Returns the JSON Schema of a pydantic model. A schema with `$defs` is replaced by a bare object,
    because its references would point to the wrong place."""
    described: dict[str, Any] = model.model_json_schema()
    return {"title": model.__name__, "type": "object"} if "$defs" in described else described


def _hide_input(error: ValueError) -> str:
    """Returns the error without the input: pydantic quotes it, and it may be a secret."""
    details = getattr(error, "errors", None)
    if details is None:
        return str(error)
    problems = details(include_input=False, include_url=False, include_context=False)
    return "; ".join(
        f"{'.'.join(map(str, problem['loc'])) or 'value'}: {problem['msg']}" for problem in problems
    )
