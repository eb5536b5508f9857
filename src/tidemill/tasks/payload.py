"""Arguments as JSON, checked against the handler's annotations on both sides of the queue.

A payload is an object with one member per parameter. Both directions go through one
msgspec type made from the signature, so what was accepted at enqueue decodes at run.
pydantic models are taken as they are when the user has pydantic; nothing here imports it.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self, cast

import msgspec
from msgspec.inspect import type_info

from tidemill.errors import ConfigurationError, InvalidPayload
from tidemill.tasks.shapes import foreign_types, holds_objects, in_words, stranger

if TYPE_CHECKING:
    from msgspec.inspect import StructType, Type


def encode_foreign(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"objects of type {type(value).__name__} are not data")
    return dump(mode="json", warnings=False)  # a warning would quote the value; it is checked next


_ENCODER = msgspec.json.Encoder(enc_hook=encode_foreign)


_AS_WRITTEN: msgspec.json.Decoder[Any] = msgspec.json.Decoder(float_hook=Decimal)
_NUMBERS = msgspec.json.Encoder(decimal_format="number")


def canonical(payload: bytes) -> bytes:
    """JSON as this module writes it: no spaces, and text as text. What another language's library wrote
    as \\uXXXX would be found by no search for it. Numbers keep all their digits."""
    return _NUMBERS.encode(_AS_WRITTEN.decode(payload))


class PayloadCodec:
    def __init__(self, signature: inspect.Signature, shape: type[msgspec.Struct]) -> None:
        self._bind = signature.bind
        self.parameters = tuple(signature.parameters.values())
        self.hints: Mapping[str, Any] = shape.__annotations__
        self.names = tuple(signature.parameters)
        self._kind = kind = cast("StructType", type_info(shape))
        self._objects = [field.name for field in kind.fields if holds_objects(field.type)]
        self._keyword_only = tuple(
            name for name, p in signature.parameters.items() if p.kind is p.KEYWORD_ONLY
        )
        self._decoder = msgspec.json.Decoder(shape, dec_hook=_decode_foreign)

    @classmethod
    def of(cls, handler: Callable[..., Any], *, skip_first: bool) -> Self:
        signature = inspect.signature(handler)
        parameters = list(signature.parameters.values())[1 if skip_first else 0 :]
        hints = resolved_hints(handler)
        fields = [_field(parameter, hints) for parameter in parameters]
        try:
            shape = msgspec.defstruct("payload", fields, forbid_unknown_fields=True, kw_only=True)
            codec = cls(signature.replace(parameters=parameters), shape)
        except TypeError as error:
            raise ConfigurationError(f"an annotation cannot be checked: {error}") from None
        for field in codec._kind.fields:
            _refuse_foreign(f"parameter {field.name}", field.type)
        return codec

    def only(self, names: Collection[str]) -> PayloadCodec:
        """For some of the arguments, while the others are not known."""
        parameters = [one for one in self.parameters if one.name in names]
        fields = [_field(one, self.hints) for one in parameters]
        shape = msgspec.defstruct("payload", fields, forbid_unknown_fields=True, kw_only=True)
        return PayloadCodec(inspect.Signature(parameters), shape)

    def schema(self) -> dict[str, Any]:
        """What a payload may be, as JSON Schema."""
        return msgspec.json.schema(self._decoder.type, schema_hook=_foreign_schema)

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        arguments = self.bound(args, kwargs)
        try:
            payload = _ENCODER.encode(arguments)
        except (TypeError, ValueError) as error:
            raise InvalidPayload(f"cannot be written as JSON: {error}") from None
        if self.names:
            self.check(payload)
        # An instance has no members but its fields: only what is written as JSON is looked at again.
        if any(isinstance(arguments.get(name), dict | list | tuple) for name in self._objects):
            self._refuse_strangers(payload)
        return payload

    def by_name(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Every argument by its parameter's name, those left to their defaults too."""
        bound = self._bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    def bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments that were given, by name."""
        if not kwargs and len(args) == len(self.names) and not self._keyword_only:
            return dict(zip(self.names, args, strict=True))  # what binding would find, for less
        try:
            return self._bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidPayload(str(error)) from None

    def check(self, payload: bytes) -> msgspec.Struct:
        try:
            return self._decoder.decode(payload)
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
            raise InvalidPayload(in_words(str(error), self._kind)) from None

    def decode_strictly(self, payload: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """`decode` of what somebody wrote by hand or another program sends: members of an object that
        no field takes are refused as well."""
        arguments = self.decode(payload)
        if self._objects:
            self._refuse_strangers(payload)
        return arguments

    def _refuse_strangers(self, payload: bytes) -> None:
        values = msgspec.json.decode(payload)
        for field in self._kind.fields:
            if found := stranger(field.type, values.get(field.name), field.name):
                known = ", ".join(found.fields)
                raise InvalidPayload(
                    f"{found.path}: {found.owner} has no field {found.name!r}; it has {known}"
                )

    def decode(self, payload: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and keyword arguments a handler is called with."""
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
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(result_type, dec_hook=_decode_foreign)

    @classmethod
    def of(cls, handler: Callable[..., Any]) -> Self:
        return cls.for_type(resolved_hints(handler).get("return", Any))

    @classmethod
    def for_type(cls, hint: Any) -> Self:
        try:
            codec, kind = cls(hint), type_info(hint)
        except TypeError as error:
            raise ConfigurationError(f"return: the annotation cannot be read back: {error}") from None
        _refuse_foreign("return", kind)
        return codec

    def encode(self, value: Any) -> bytes | None:
        return None if value is None else _ENCODER.encode(value)

    def decode(self, result: bytes | None) -> Any:
        return None if result is None else self._decoder.decode(result)


def resolved_hints(handler: Callable[..., Any]) -> dict[str, Any]:
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


def _refuse_foreign(where: str, kind: Type) -> None:
    for one in foreign_types(kind):
        if not hasattr(one, "model_validate"):
            name = getattr(one, "__name__", str(one))
            raise ConfigurationError(
                f"{where}: {name} cannot be read from JSON; make it a dataclass, a TypedDict, a "
                "msgspec.Struct or a pydantic model, or send an id (see docs/reference/payloads.md)"
            )


def _decode_foreign(wanted: type, value: Any) -> Any:
    validate = getattr(wanted, "model_validate", None)
    if validate is None:
        raise TypeError(f"objects of type {wanted.__name__} are not data")
    try:
        return validate(value)
    except ValueError as error:
        raise ValueError(_without_input(error)) from None


def _foreign_schema(wanted: Any) -> dict[str, Any]:
    """References inside it are to its own definitions, which are not where the whole schema has its: what
    it is made of is left open then."""
    described: dict[str, Any] = wanted.model_json_schema()
    return {"title": wanted.__name__, "type": "object"} if "$defs" in described else described


def _without_input(error: ValueError) -> str:
    """pydantic quotes what it was given, which may be a secret: say where and what is wrong only."""
    details = getattr(error, "errors", None)
    if details is None:
        return str(error)
    problems = details(include_input=False, include_url=False, include_context=False)
    return "; ".join(
        f"{'.'.join(map(str, problem['loc'])) or 'value'}: {problem['msg']}" for problem in problems
    )
