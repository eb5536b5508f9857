"""What is a secret by its name, and what of data and text may be shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any


class Secret:
    """`Annotated[str, Secret]` on a parameter of a task, or on a field of its type: whoever looks at a job
    sees that there is a value, and not which."""


HIDDEN = "[hidden]"

_WORDS = frozenset(
    {"password", "passwd", "passphrase", "pwd", "secret", "secrets", "token", "authorization", "apikey"}
    | {"cookie", "cookies", "credential", "credentials", "bearer", "jwt"}
)
_ENDINGS = (
    *("password", "passwd", "secret", "token", "apikey", "privatekey", "accesskey", "secretkey"),
    *("signingkey", "encryptionkey", "sessionid", "credentials", "cookie"),
)
"""Of names with their separators left out. `tokens` is none: that is what models are metered by."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_APART = re.compile(r"[^a-z0-9]+")
_NO_NAME = bytes(set(range(256)) - set(b"abcdefghijklmnopqrstuvwxyz0123456789"))

_SEPARATOR = re.compile(r"[:=](?!//)")
_NAME_BACKWARDS = re.compile(r"""\s{0,5}["']?\\*([\w.-]{2,60})""")
"""The name before a separator, read from the separator to the left. A pattern that reads from the left has to
try every letter of a long word as the beginning of the name: 200 kB took half a second."""
_OPENING = re.compile(r"""\s{0,5}\\*["']?""")
_VALUE = re.compile(r"""[^\s"',;&)}\]]+""")
_SCHEME = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}")
_IN_ADDRESS = re.compile(r"(\w://[^\s:/@]*):[^\s/@]+@")
_LONG_TEXT = 1000
"""Characters from which one fast search for the words of secrets saves the slow one."""
_LONGEST_KNOWN_NAME = 100
CUT = "[cut: too long to redact]"
PAGE_BYTES = 4 * 1024 * 1024
"""Bytes of payloads and results that are redacted for one page, and as many of texts. In the worst case 1 MiB
takes half a second of CPU, in a thread."""
LEAST = 6
"""Characters of a value that is looked for in texts: shorter ones occur by chance."""


class Names:
    """Which names of fields are of secrets. Case and separators make no difference: `apiKey`, `API-KEY`."""

    def __init__(self, more: Iterable[str] = ()) -> None:
        self._more = frozenset(map(_joined, more)) - {""}
        self._known: dict[str, bool] = {}
        stems = "|".join(sorted({*_WORDS, *_ENDINGS, "basic", *self._more}))
        self._stems = re.compile(stems.encode())

    def with_more(self, names: Iterable[str]) -> Names:
        return Names([*self._more, *names])

    def hide(self, name: str) -> bool:
        if len(name) > _LONGEST_KNOWN_NAME:  # made up: it would fill the memory
            return self._hides(name)
        if (known := self._known.get(name)) is None:
            if len(self._known) > 10_000:  # noqa: PLR2004 - names of fields are few, unless somebody makes them up
                self._known.clear()
            known = self._known[name] = self._hides(name)
        return known

    def may_be_in(self, stored: bytes) -> bool:
        """False when there is certainly no secret in that JSON or text: most data is not looked at twice."""
        if b"\\u" in stored or b"://" in stored or not stored.isascii():
            return True
        return self._stems.search(stored.lower().translate(None, _NO_NAME)) is not None

    def _hides(self, name: str) -> bool:
        joined = _joined(name)
        words = _APART.split(_CAMEL.sub("_", name).lower())
        return joined in self._more or joined.endswith(_ENDINGS) or not _WORDS.isdisjoint(words)


class Budget:
    """The bytes that may still be redacted for one answer. A text that does not fit is cut as a whole."""

    def __init__(self, size: int = PAGE_BYTES) -> None:
        self._left = size

    def take(self, size: int, secrets: int = 0) -> bool:
        """Takes the cost of redacting a text with that number of known values. False: it does not fit."""
        cost = size + size * secrets // _VALUES_PER_PASS
        if cost > self._left:
            return False
        self._left -= cost
        return True


_VALUES_PER_PASS = 16
"""Known values. Searching a text for 16 of them costs as much as one search for names of secrets."""


def redacted(value: Any, names: Names) -> Any:
    """Data without what its names say is secret. That there is a value stays."""
    if isinstance(value, dict):
        return {
            name: _mark(each) if isinstance(name, str) and names.hide(name) else redacted(each, names)
            for name, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [redacted(each, names) for each in value]
    return redacted_text(value, names) if isinstance(value, str) else value


def hidden_in(value: Any, names: Names) -> Iterator[str]:
    """The texts and numbers that `redacted` hides by their names. In one loop and without recursion: it is
    done for thousands of jobs."""
    left: list[tuple[Any, bool]] = [(value, False)]
    while left:
        each, hidden = left.pop()
        if isinstance(each, dict):
            left += [(inner, hidden or names.hide(str(name))) for name, inner in each.items()]
        elif isinstance(each, list | tuple):
            left += [(inner, hidden) for inner in each]
        elif hidden and each is not None:
            yield str(each)


def redacted_text(text: str, names: Names, secrets: Iterable[str] = ()) -> str:
    """A message, a stack trace or a log line: without those secrets, and without what looks like one."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    if " " in text and _SCHEME.search(text):
        text = _SCHEME.sub(rf"\1 {HIDDEN}", text)
    if ":" not in text and "=" not in text:
        return text
    if "://" in text:
        text = _IN_ADDRESS.sub(rf"\1:{HIDDEN}@", text)
    if len(text) > _LONG_TEXT and not names.may_be_in(text.encode(errors="replace")):
        return text
    return "".join(_unnamed(text, names))


def _unnamed(text: str, names: Names) -> Iterator[str]:
    """`password=…`, `"api_key": "…"`: the value behind a name goes. One that is no secret's may itself be a
    name: `note=password=…`. Each character is read a fixed number of times."""
    backwards, length = text[::-1], len(text)
    shown = at = 0
    while separator := _SEPARATOR.search(text, at):
        name = _NAME_BACKWARDS.match(backwards, length - separator.start(), length - at)
        at = _end_of(_OPENING, text, separator.end())
        value = _VALUE.match(text, at) if name is not None and names.hide(name[1][::-1]) else None
        if value is not None and not value[0].startswith("["):
            yield text[shown:at]
            yield HIDDEN
            shown = at = value.end()
    yield text[shown:]


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()


def _mark(value: Any) -> Any:
    return value if value is None or value == "" else HIDDEN


def _joined(name: str) -> str:
    return _APART.sub("", name.lower())
