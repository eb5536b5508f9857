"""What a setting may be, in words, from its annotation."""

from __future__ import annotations

import re
from typing import Any

from msgspec import inspect

_SHOWN = 60  # characters of a wrong value
_SECRET = re.compile(r"(?i)://|@|passw|pwd|secret|token|key")


def wanted(annotation: Any) -> str:
    """Ends the sentence "must be …". An annotation may say it itself, as `Meta(description=…)`."""
    return _words(inspect.type_info(annotation))


def is_list(annotation: Any) -> bool:
    found = inspect.type_info(annotation)
    return isinstance(found.type if isinstance(found, inspect.Metadata) else found, inspect.CollectionType)


def shown(value: Any) -> str:
    """A wrong value as it may be shown: a secret may have got into the wrong variable."""
    return "***" if _SECRET.search(str(value)) else repr(value)[:_SHOWN]


def _words(found: inspect.Type) -> str:
    match found:
        case inspect.Metadata():
            said = (found.extra_json_schema or {}).get("description")
            return str(said) if said else _words(found.type)
        case inspect.IntType():
            return f"a whole number{_bounds(found)}"
        case inspect.FloatType():
            return f"a number{_bounds(found)}"
        case inspect.BoolType():
            return "true or false"
        case inspect.LiteralType():
            return " or ".join(map(str, found.values))
        case inspect.UnionType():
            return " or ".join(_words(one) for one in found.types if not isinstance(one, inspect.NoneType))
        case inspect.CollectionType():
            return f"a list with commas, each {_words(found.item_type)}"
        case _:
            return "text"


def _bounds(found: inspect.IntType | inspect.FloatType) -> str:
    if found.ge is not None and found.le is not None:
        return f" from {found.ge:g} to {found.le:g}"
    said = [
        words.format(bound)
        for words, bound in (
            ("of {:g} or more", found.ge),
            ("above {:g}", found.gt),
            ("of at most {:g}", found.le),
            ("below {:g}", found.lt),
        )
        if bound is not None
    ]
    return f" {' and '.join(said)}" if said else ""
