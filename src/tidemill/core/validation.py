"""Checks of names and numbers, suggestions for mistyped names, and byte sizes as text."""

from __future__ import annotations

from collections.abc import Iterable

from tidemill.errors import ConfigurationError

MAX_NAME_CHARS = 200


def problem_with_name(field: str, name: str) -> str | None:
    if not 0 < len(name) <= MAX_NAME_CHARS:
        return f"{field}: must have 1 to {MAX_NAME_CHARS} characters, has {len(name)}"
    if not is_storable(name):
        return f"{field}: must be text without NUL characters or lone surrogates, is {name[:50]!r}"
    return None


def refuse_unknown_options(options: Iterable[str], known: Iterable[str], where: str) -> None:
    names = list(known)
    for name in options:
        if name not in names:
            raise ConfigurationError(
                f"{where}: unknown option {name!r}; valid options are {', '.join(names)}"
            )


def is_storable(text: str) -> bool:
    """True if every store can keep the text. NUL ends a string in C, and a lone surrogate has no UTF-8
    encoding."""
    if "\0" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


INFINITY = float("inf")
_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB")
_THOUSAND = 1000


def is_number(value: object, least: float) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return least <= value < INFINITY


def is_integer(value: object, least: int) -> bool:
    return isinstance(value, int) and is_number(value, least)


def format_bytes(count: float) -> str:
    """Returns a size in bytes as text with three digits and a decimal unit: `4.39 MB`. Pages and the command
    line use the same format."""
    for unit in _BYTE_UNITS[:-1]:
        if count < _THOUSAND:
            return f"{count:.3g} {unit}"
        count /= _THOUSAND
    return f"{count:.3g} {_BYTE_UNITS[-1]}"


def close_matches(name: str, known: Iterable[str], *, most: int = 1) -> list[str]:
    """Returns up to `most` names from `known` that are similar to `name`, the most similar first."""
    import difflib  # imported here: it costs 1 ms, and most programs never need it

    return difflib.get_close_matches(name, list(known), n=most)
