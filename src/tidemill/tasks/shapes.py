"""What a handler's annotations say about JSON: which types can be read at all, and what an object may have.

msgspec ignores members of an object that no field takes. At run time that is right: a worker must
run the jobs of a newer producer. Where a person or another program writes the JSON it hides a
typing error, so there the members are compared with the fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec import inspect as m

_OBJECTS = (m.StructType, m.DataclassType, m.TypedDictType)
_ITEMS = (m.ListType, m.SetType, m.FrozenSetType, m.CollectionType, m.VarTupleType)
_WORDS = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "null",
    "array": "a list",
}
_NOT_AN_OBJECT = re.compile(r"Expected `object( \| null)?`, got `(\w+)` - at `\$\.(.+)`")


class Stranger(NamedTuple):
    """A member no field takes: where, its name, and the fields there are."""

    path: str
    name: str
    owner: str
    fields: tuple[str, ...]


def foreign_types(kind: m.Type) -> list[type]:
    """The classes in it that are not data to msgspec; who reads them must know how."""
    return [member.cls for member in _everything(kind) if isinstance(member, m.CustomType)]


def holds_objects(kind: m.Type) -> bool:
    """Whether members of an object could get lost in it."""
    return any(isinstance(member, _OBJECTS) for member in _everything(kind))


def stranger(kind: m.Type, value: Any, path: str) -> Stranger | None:
    """The first member of decoded JSON that no field takes."""
    for inner, its, where in _inside(kind, value, path):
        if isinstance(inner, Stranger):
            return inner
        if found := stranger(inner, its, where):
            return found
    return None


def _inside(kind: m.Type, value: Any, path: str) -> Iterator[tuple[m.Type | Stranger, Any, str]]:
    for member in _members(kind):
        if isinstance(value, dict) and isinstance(member, _OBJECTS) and _is_meant(member, value):
            fields = {field.encode_name: field.type for field in member.fields}
            for name, its in value.items():
                if name in fields:
                    yield fields[name], its, f"{path}.{name}"
                elif name != getattr(member, "tag_field", None):
                    yield Stranger(path, name, member.cls.__name__, tuple(fields)), its, path
        elif isinstance(value, dict) and isinstance(member, m.DictType):
            yield from ((member.value_type, its, f"{path}.{name}") for name, its in value.items())
        elif isinstance(value, list) and isinstance(member, _ITEMS):
            yield from ((member.item_type, its, f"{path}[{n}]") for n, its in enumerate(value))
        elif isinstance(value, list) and isinstance(member, m.TupleType):
            pairs = enumerate(zip(member.item_types, value, strict=False))
            yield from ((inner, its, f"{path}[{n}]") for n, (inner, its) in pairs)


def _is_meant(member: Any, value: dict[str, Any]) -> bool:
    """Of a union of tagged structs, the one the tag names."""
    tag_field = getattr(member, "tag_field", None)
    return tag_field is None or value.get(tag_field) == member.tag


def choices(kind: m.Type, name: str) -> list[str]:
    """What a field of that name may be, where it is one of a few."""
    fields = [field for member in _everything(kind) for field in getattr(member, "fields", ())]
    for one in (one for field in fields if field.encode_name == name for one in _everything(field.type)):
        if isinstance(one, m.EnumType):
            return [str(each.value) for each in one.cls]
        if isinstance(one, m.LiteralType):
            return [str(each) for each in one.values]
    return []


def in_words(message: str, kind: m.Type) -> str:
    """msgspec's message; where an object was expected, with the type's name and fields."""
    found = _NOT_AN_OBJECT.fullmatch(message)
    wanted = _at(kind, found[3]) if found else None
    if not found or not isinstance(wanted, _OBJECTS):
        return message.replace("`$.", "`")
    name = wanted.cls.__name__
    fields = ", ".join(field.encode_name for field in wanted.fields)
    article = "an" if name[0] in "AEIOU" else "a"
    null = " or null" if found[1] else ""
    return f"{found[3]}: must be {article} {name} ({fields}){null}, is {_WORDS.get(found[2], found[2])}"


def _at(kind: m.Type, path: str) -> m.Type | None:
    """The object type at a path as msgspec writes it: `cities[0].mayor`, `[...]` inside a dict."""
    found: m.Type | None = kind
    for name in re.findall(r"\w+|\[.*?\]", path):
        members = list(_members(found)) if found is not None else []
        found = next((its for member in members for its in _step(member, name)), None)
    members = list(_members(found)) if found is not None else []
    return next((member for member in members if isinstance(member, _OBJECTS)), None)


def _step(member: m.Type, name: str) -> Iterator[m.Type]:
    if isinstance(member, _OBJECTS):
        yield from (field.type for field in member.fields if field.encode_name == name)
    elif isinstance(member, m.DictType) and name == "[...]":
        yield member.value_type
    elif isinstance(member, _ITEMS) and name.startswith("["):
        yield member.item_type


def _everything(kind: m.Type) -> Iterator[m.Type]:
    """It and all it is made of. A type may have itself in it."""
    seen: set[int] = set()
    waiting = [kind]
    while waiting:
        for member in _members(waiting.pop()):
            if id(member) not in seen:
                seen.add(id(member))
                yield member
                waiting += _parts(member)


def _members(kind: m.Type) -> Iterator[m.Type]:
    """Without constraints, and each part of a union."""
    if isinstance(kind, m.Metadata):
        yield from _members(kind.type)
    elif isinstance(kind, m.UnionType):
        for one in kind.types:
            yield from _members(one)
    else:
        yield kind


def _parts(kind: m.Type) -> list[m.Type]:
    if isinstance(kind, (*_OBJECTS, m.NamedTupleType)):
        return [field.type for field in kind.fields]
    if isinstance(kind, m.DictType):
        return [kind.key_type, kind.value_type]
    if isinstance(kind, m.TupleType):
        return list(kind.item_types)
    return [kind.item_type] if isinstance(kind, _ITEMS) else []
