"""Reads the annotations of a handler: which types JSON can represent, and which fields an object may have.

A worker ignores unknown members of a JSON object, because a newer program may have sent the job. In JSON from
a person or another program, an unknown member is an error; this module finds it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec import inspect as m

_OBJECT_TYPES = (m.StructType, m.DataclassType, m.TypedDictType)
_COLLECTION_TYPES = (m.ListType, m.SetType, m.FrozenSetType, m.CollectionType, m.VarTupleType)
_JSON_TYPE_NAMES = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "null",
    "array": "a list",
}
_OBJECT_EXPECTED = re.compile(r"Expected `object( \| null)?`, got `(\w+)` - at `\$\.(.+)`")


class UnknownMember(NamedTuple):
    """A member of a JSON object that no field matches.

    - `path`: where the object is in the payload.
    - `owner`: the name of the object's type.
    - `fields`: the known field names."""

    path: str
    name: str
    owner: str
    fields: tuple[str, ...]


def find_custom_types(kind: m.Type) -> list[type]:
    """Returns the classes in a type that msgspec cannot encode by itself."""
    return [member.cls for member in _all_types(kind) if isinstance(member, m.CustomType)]


def contains_objects(kind: m.Type) -> bool:
    """True if the type contains a struct, dataclass or TypedDict. Decoding such a type silently drops unknown
    members."""
    return any(isinstance(member, _OBJECT_TYPES) for member in _all_types(kind))


def find_unknown_member(kind: m.Type, value: Any, path: str) -> UnknownMember | None:
    """Returns the first member in the decoded JSON `value` that no field of `kind` matches; None if all
    match.

    `path`: where `value` is in the payload."""
    for inner, its, where in _walk_members(kind, value, path):
        if isinstance(inner, UnknownMember):
            return inner
        if found := find_unknown_member(inner, its, where):
            return found
    return None


def _walk_members(kind: m.Type, value: Any, path: str) -> Iterator[tuple[m.Type | UnknownMember, Any, str]]:
    for member in _union_members(kind):
        if isinstance(value, dict) and isinstance(member, _OBJECT_TYPES) and _matches_tag(member, value):
            fields = {field.encode_name: field.type for field in member.fields}
            for name, its in value.items():
                if name in fields:
                    yield fields[name], its, f"{path}.{name}"
                elif name != getattr(member, "tag_field", None):
                    yield UnknownMember(path, name, member.cls.__name__, tuple(fields)), its, path
        elif isinstance(value, dict) and isinstance(member, m.DictType):
            yield from ((member.value_type, its, f"{path}.{name}") for name, its in value.items())
        elif isinstance(value, list) and isinstance(member, _COLLECTION_TYPES):
            yield from ((member.item_type, its, f"{path}[{n}]") for n, its in enumerate(value))
        elif isinstance(value, list) and isinstance(member, m.TupleType):
            pairs = enumerate(zip(member.item_types, value, strict=False))
            yield from ((inner, its, f"{path}[{n}]") for n, (inner, its) in pairs)


def _matches_tag(member: Any, value: dict[str, Any]) -> bool:
    """True if the JSON object `value` may have the type `member`. If the type has a tag (a field that names
    the type), the object must have the same tag."""
    tag_field = getattr(member, "tag_field", None)
    return tag_field is None or value.get(tag_field) == member.tag


def find_choices(kind: m.Type, name: str) -> list[str]:
    """Returns the allowed values of the field `name` if it is an enum or a Literal, otherwise an empty
    list."""
    fields = [field for member in _all_types(kind) for field in getattr(member, "fields", ())]
    for inner in (inner for field in fields if field.encode_name == name for inner in _all_types(field.type)):
        if isinstance(inner, m.EnumType):
            return [str(choice.value) for choice in inner.cls]
        if isinstance(inner, m.LiteralType):
            return [str(choice) for choice in inner.values]
    return []


def explain_decode_error(message: str, kind: m.Type) -> str:
    """Returns the message of a msgspec error for users. If an object was expected, the message names its type
    and its fields."""
    found = _OBJECT_EXPECTED.fullmatch(message)
    expected = _type_at(kind, found[3]) if found else None
    if not found or not isinstance(expected, _OBJECT_TYPES):
        return message.replace("`$.", "`")
    name = expected.cls.__name__
    fields = ", ".join(field.encode_name for field in expected.fields)
    article = "an" if name[0] in "AEIOU" else "a"
    null = " or null" if found[1] else ""
    actual = _JSON_TYPE_NAMES.get(found[2], found[2])
    return f"{found[3]}: must be {article} {name} ({fields}){null}, is {actual}"


def _type_at(kind: m.Type, path: str) -> m.Type | None:
    """Returns the object type at a path inside `kind`; None if there is none. The path is in msgspec's
    notation: `cities[0].mayor`, and `[...]` inside a dict."""
    found: m.Type | None = kind
    for name in re.findall(r"\w+|\[.*?\]", path):
        members = list(_union_members(found)) if found is not None else []
        found = next((its for member in members for its in _step_into(member, name)), None)
    members = list(_union_members(found)) if found is not None else []
    return next((member for member in members if isinstance(member, _OBJECT_TYPES)), None)


def _step_into(member: m.Type, name: str) -> Iterator[m.Type]:
    if isinstance(member, _OBJECT_TYPES):
        yield from (field.type for field in member.fields if field.encode_name == name)
    elif isinstance(member, m.DictType) and name == "[...]":
        yield member.value_type
    elif isinstance(member, _COLLECTION_TYPES) and name.startswith("["):
        yield member.item_type


def _all_types(kind: m.Type) -> Iterator[m.Type]:
    """Yields the type and all types inside it, each once, even if a type contains itself."""
    seen: set[int] = set()
    waiting = [kind]
    while waiting:
        for member in _union_members(waiting.pop()):
            if id(member) not in seen:
                seen.add(id(member))
                yield member
                waiting += _inner_types(member)


def _union_members(kind: m.Type) -> Iterator[m.Type]:
    """Yields the types in a union, without constraints such as a maximum length. If `kind` is no union,
    yields only `kind`, also without its constraints."""
    if isinstance(kind, m.Metadata):
        yield from _union_members(kind.type)
    elif isinstance(kind, m.UnionType):
        for member in kind.types:
            yield from _union_members(member)
    else:
        yield kind


def _inner_types(kind: m.Type) -> list[m.Type]:
    if isinstance(kind, (*_OBJECT_TYPES, m.NamedTupleType)):
        return [field.type for field in kind.fields]
    if isinstance(kind, m.DictType):
        return [kind.key_type, kind.value_type]
    if isinstance(kind, m.TupleType):
        return list(kind.item_types)
    return [kind.item_type] if isinstance(kind, _COLLECTION_TYPES) else []
