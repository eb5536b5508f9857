"""Text that cannot drive the terminal it is shown in.

Names, payloads and errors come from anywhere. An escape sequence in one of them could move the cursor, change
the title of a window or hide other lines; characters that set the direction of writing could make a line read
as another one.
"""

from __future__ import annotations

import json
import re
import unicodedata

_MAYBE = re.compile(r"[^\x20-\x7e\n\t]")
_MAYBE_IN_JSON = re.compile(r"[^\x20-\x7e\n]")
_CONTROLS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control characters, those of direction and joining, lone surrogates, and what else may begin a line."""


def printable(text: str) -> str:
    """Without control characters but line ends and tabs."""
    return _MAYBE.sub(lambda found: _shown(found[0]), text)


def one_line(text: str) -> str:
    """The same, with line ends as people write them: nothing in it can pass for a line of ours."""
    return printable(text).replace("\n", "\\n")


def printable_json(text: str) -> str:
    """A JSON document that says the same, with every character that is not to be seen as an escape."""
    return _MAYBE_IN_JSON.sub(lambda found: _escaped(found[0]), text)


def _shown(character: str) -> str:
    return "�" if unicodedata.category(character) in _CONTROLS else character


def _escaped(character: str) -> str:
    """Beyond ASCII there are only strings: as JSON writes them anywhere."""
    return character if character.isprintable() else json.dumps(character)[1:-1]
