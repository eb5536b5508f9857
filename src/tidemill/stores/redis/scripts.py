"""Loads the Lua scripts of the Redis store, one file per script. A line `-- uses:` names files of `lua/parts`
to put before the script."""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha1
from importlib.resources import files

_USES = re.compile(r"^-- uses: ([\w ]+)$", re.MULTILINE)
_FOLDER = files("tidemill.stores.redis") / "lua"


class LuaScript:
    """A Lua script, which the server knows by its SHA-1. `uses_boot_clock`: the script uses leases or
    windows, so each request sends the boot time that the client expects."""

    def __init__(self, name: str, source: str, *, uses_boot_clock: bool = False) -> None:
        self.name, self.uses_boot_clock = name, uses_boot_clock
        self.source = source.encode()
        # Redis identifies scripts by SHA-1; it protects nothing.
        self.sha = sha1(self.source, usedforsecurity=False).hexdigest().encode()


@cache
def load_script(verb: str) -> LuaScript:
    text = (_FOLDER / f"{verb}.lua").read_text()
    used: list[str] = []
    return LuaScript(verb, "\n".join([*_load_parts(text, used), text]), uses_boot_clock="clock" in used)


def _load_parts(text: str, taken: list[str]) -> list[str]:
    """Returns the texts of the files in `lua/parts` that `text` needs by its `-- uses:` lines. Adds the names
    of these files to `taken`."""
    found: list[str] = []
    for name in [name for line in _USES.findall(text) for name in line.split()]:
        if name not in taken:
            taken.append(name)
            part = (_FOLDER / "parts" / f"{name}.lua").read_text()
            found += [*_load_parts(part, taken), part]
    return found
