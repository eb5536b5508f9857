"""What may be the name of something: an id, a queue, a task, a key, an option."""

from __future__ import annotations

from collections.abc import Iterable

from tidemill.errors import ConfigurationError

MAX_NAME = 200


def problem_with_name(field: str, name: str) -> str | None:
    if not 0 < len(name) <= MAX_NAME:
        return f"{field}: must have 1 to {MAX_NAME} characters, has {len(name)}"
    if not is_storable(name):
        return f"{field}: must be text without NUL characters or lone surrogates, is {name[:50]!r}"
    return None


def refuse_unknown(given: Iterable[str], known: Iterable[str], where: str) -> None:
    names = list(known)
    for name in given:
        if name not in names:
            raise ConfigurationError(
                f"{where}: unknown option {name!r}; valid options are {', '.join(names)}"
            )


def is_storable(text: str) -> bool:
    """NUL ends a text in C, and a lone surrogate has no UTF-8: no store could keep it as it is."""
    if "\0" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
