"""Lua lives in files: one per verb, with shared parts named on top by a `-- uses:` line."""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha1
from importlib.resources import files

_USES = re.compile(r"^-- uses: ([\w ]+)$", re.MULTILINE)
_FOLDER = files("tidemill.stores.redis") / "lua"


class Script:
    """A verb as the server knows it: by the digest of its text. One that `reckons` looks at the clock of
    leases and windows, so its sender says what it expects of that."""

    def __init__(self, name: str, source: str, *, reckons: bool = False) -> None:
        self.name, self.reckons = name, reckons
        self.source = source.encode()
        # Redis names scripts so; nothing is protected by it.
        self.sha = sha1(self.source, usedforsecurity=False).hexdigest().encode()


@cache
def load(verb: str) -> Script:
    text = (_FOLDER / f"{verb}.lua").read_text()
    used: list[str] = []
    return Script(verb, "\n".join([*_parts(text, used), text]), reckons="clock" in used)


def _parts(text: str, taken: list[str]) -> list[str]:
    """The texts of the parts used, each once, a part after those it uses itself."""
    found: list[str] = []
    for name in [name for line in _USES.findall(text) for name in line.split()]:
        if name not in taken:
            taken.append(name)
            part = (_FOLDER / "parts" / f"{name}.lua").read_text()
            found += [*_parts(part, taken), part]
    return found
