"""Redaction: hides secrets and control characters in data and text that people see."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any


class Secret:
    """A marker for a secret value: `Annotated[str, Secret]`, on a task's parameter or on a field of its type.
    Pages and logs do not show the value."""


HIDDEN_MARK = "[hidden]"

_WORDS = frozenset(
    {"password", "passwd", "passphrase", "pwd", "secret", "secrets", "token", "authorization", "apikey"}
    | {"cookie", "cookies", "credential", "credentials", "bearer", "jwt"}
)
_ENDINGS = (
    *("password", "passwd", "secret", "token", "apikey", "privatekey", "accesskey", "secretkey"),
    *("signingkey", "encryptionkey", "sessionid", "credentials", "cookie"),
)
"""Endings of names without separators. `tokens` is not one: models count usage in tokens."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NON_NAME_CHARS = re.compile(r"[^a-z0-9]+")
_NON_NAME_BYTES = bytes(set(range(256)) - set(b"abcdefghijklmnopqrstuvwxyz0123456789"))

_SEPARATOR = re.compile(r"[:=](?!//)")
_NAME_BACKWARDS = re.compile(r"""\s{0,5}["']?\\*([\w.-]{2,60})""")
"""The name before a separator, read from the separator to the left. Read from the left, every letter of a
long word would have to be tried as the beginning: 200 kB took half a second."""
_OPENING = re.compile(r"""\s{0,5}\\*["']?""")
_VALUE = re.compile(r"""[^\s"',;&)}\]]+""")
_SCHEME = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}")
_IN_ADDRESS = re.compile(r"(\w://[^\s:/@]*):[^\s/@]+@")
_LONG_TEXT_CHARS = 1000
"""For texts longer than this, one fast search for the words of secrets saves the slow search."""
_MAX_CACHED_NAME_CHARS = 100
CUT_MARK = "[cut: too long to redact]"
MAX_REDACTED_BYTES = 4 * 1024 * 1024
"""The most bytes of payloads and results that are redacted for one page, and as many of texts. In the worst
case 1 MiB takes half a second of CPU, in a thread."""
MIN_SECRET_CHARS = 6
"""The shortest value that is searched for in texts: shorter ones occur by chance."""


class SecretNames:
    """The field names whose values are secret: the built-in names and the names in `more`. `apiKey` and
    `API-KEY` are the same name."""

    def __init__(self, more: Iterable[str] = ()) -> None:
        self._more = frozenset(map(_normalise_name, more)) - {""}
        self._known: dict[str, bool] = {}
        stems = "|".join(sorted({*_WORDS, *_ENDINGS, "basic", *self._more}))
        self._stems = re.compile(stems.encode())

    def with_more(self, names: Iterable[str]) -> SecretNames:
        return SecretNames([*self._more, *names])

    def hide(self, name: str) -> bool:
        if len(name) > _MAX_CACHED_NAME_CHARS:  # not cached: made-up names would fill the memory
            return self._hides(name)
        if (known := self._known.get(name)) is None:
            if len(self._known) > 10_000:  # noqa: PLR2004 - real programs have few field names
                self._known.clear()
            known = self._known[name] = self._hides(name)
        return known

    def may_be_in(self, stored: bytes) -> bool:
        """Returns False if the JSON or text `stored` certainly contains no secret, else True. This fast check
        saves the full search for most data."""
        if b"\\u" in stored or b"://" in stored or not stored.isascii():
            return True
        return self._stems.search(stored.lower().translate(None, _NON_NAME_BYTES)) is not None

    def _hides(self, name: str) -> bool:
        joined = _normalise_name(name)
        words = _NON_NAME_CHARS.split(_CAMEL.sub("_", name).lower())
        return joined in self._more or joined.endswith(_ENDINGS) or not _WORDS.isdisjoint(words)


class RedactionBudget:
    """The number of bytes that may still be redacted for one response. A text that does not fit is replaced
    as a whole by a short message."""

    def __init__(self, size: int = MAX_REDACTED_BYTES) -> None:
        self._left = size

    def take(self, size: int, secrets: int = 0) -> bool:
        """Takes the cost of redacting a text of `size` bytes from the budget. Returns False, and takes
        nothing, if the budget is too small. `secrets` is the number of known secret values to search for."""
        cost = size + size * secrets // _VALUES_PER_PASS
        if cost > self._left:
            return False
        self._left -= cost
        return True


_VALUES_PER_PASS = 16
"""Known values per pass: searching a text for 16 of them costs as much as one search for secret names."""


def redact(value: Any, names: SecretNames) -> Any:
    """Returns the data with the values of secret fields hidden. Secrets inside texts are hidden too."""
    if isinstance(value, dict):
        return {
            name: _hidden_value(member)
            if isinstance(name, str) and names.hide(name)
            else redact(member, names)
            for name, member in value.items()
        }
    if isinstance(value, list | tuple):
        return [redact(member, names) for member in value]
    return redact_text(value, names) if isinstance(value, str) else value


def hidden_values(value: Any, names: SecretNames) -> Iterator[str]:
    """Yields, as text, every value that `redact` hides because of its field name."""
    left: list[tuple[Any, bool]] = [(value, False)]
    while left:
        node, hidden = left.pop()
        if isinstance(node, dict):
            left += [(inner, hidden or names.hide(str(name))) for name, inner in node.items()]
        elif isinstance(node, list | tuple):
            left += [(inner, hidden) for inner in node]
        elif hidden and node is not None:
            yield str(node)


def redact_text(text: str, names: SecretNames, secrets: Iterable[str] = ()) -> str:
    """Returns the text without the values in `secrets` and without anything that looks like a secret."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN_MARK)
    if " " in text and _SCHEME.search(text):
        text = _SCHEME.sub(rf"\1 {HIDDEN_MARK}", text)
    if ":" not in text and "=" not in text:
        return text
    if "://" in text:
        text = _IN_ADDRESS.sub(rf"\1:{HIDDEN_MARK}@", text)
    if len(text) > _LONG_TEXT_CHARS and not names.may_be_in(text.encode(errors="replace")):
        return text
    return "".join(_hide_named_values(text, names))


def _hide_named_values(text: str, names: SecretNames) -> Iterator[str]:
    """Yields the pieces of the text, with the value after each secret name hidden, as in `password=…` and
    `"api_key": "…"`."""
    backwards, length = text[::-1], len(text)
    shown = at = 0
    while separator := _SEPARATOR.search(text, at):
        name = _NAME_BACKWARDS.match(backwards, length - separator.start(), length - at)
        at = _match_end(_OPENING, text, separator.end())
        value = _VALUE.match(text, at) if name is not None and names.hide(name[1][::-1]) else None
        if value is not None and not value[0].startswith("["):
            yield text[shown:at]
            yield HIDDEN_MARK
            shown = at = value.end()
    yield text[shown:]


def _match_end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()


def _hidden_value(value: Any) -> Any:
    return value if value is None or value == "" else HIDDEN_MARK


def _normalise_name(name: str) -> str:
    return _NON_NAME_CHARS.sub("", name.lower())


_UNSAFE = re.compile(r"[^\x20-\x7e\n\t]")
_UNSAFE_IN_JSON = re.compile(r"[^\x20-\x7e\n]")
_CONTROL_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control characters, direction and joining marks, lone surrogates, and other line separators."""


def strip_controls(text: str) -> str:
    """Returns the text with every control character replaced by a visible sign, except line ends and tabs."""
    return _UNSAFE.sub(lambda found: _replace_control(found[0]), text)


def escape_newlines(text: str) -> str:
    """Returns the text as one line: control characters are replaced and line ends are escaped. No value can
    then imitate a log line."""
    return strip_controls(text).replace("\n", "\\n")


def escape_json_controls(text: str) -> str:
    """Returns the JSON text with every invisible character escaped. Its meaning does not change."""
    return _UNSAFE_IN_JSON.sub(lambda found: _escape_control(found[0]), text)


def _replace_control(character: str) -> str:
    return "�" if unicodedata.category(character) in _CONTROL_CATEGORIES else character


def _escape_control(character: str) -> str:
    """Returns the character, or its JSON escape if it is not printable."""
    return character if character.isprintable() else json.dumps(character)[1:-1]
