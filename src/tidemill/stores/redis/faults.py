"""What a server refuses and how connections end, in Tidemill's words: what happened, and what to do."""

from __future__ import annotations

import re

from tidemill.errors import (
    ConfigurationError,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    TidemillError,
)

ELSEWHERE = ("READONLY", "MOVED", "MASTERDOWN")
"""The primary is, or soon will be, another server."""
AGAIN = (*ELSEWHERE, "ASK", "LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "NOREPLICAS")
"""Refused before anything was done, and soon no more."""

_IN_SCRIPT = re.compile(r"^ERR Error running script.*?: -?([A-Z]{3,}) ")
"""Before version 7 a refusal inside a script comes in its words for a script's error."""
_FORBIDDEN_IN_SCRIPT = re.compile(r"^ERR .*(ACL failure in script|The user executing the script can't)")
"""What only the script's commands are not allowed comes without the word for it."""


class Lost(Exception):
    """A connection is over, or could not be made. What was under way may or may not have been done."""


class Said(Exception):
    """A reply that is an error. Its first word says which."""

    @property
    def word(self) -> str:
        text = str(self)
        if _FORBIDDEN_IN_SCRIPT.match(text):
            return "NOPERM"
        inside = _IN_SCRIPT.match(text)
        return inside[1] if inside else text.partition(" ")[0]


def translate(said: Said, place: str) -> TidemillError:
    text = str(said)
    match said.word:
        case "WRONGPASS" | "NOAUTH":
            return ConfigurationError(
                f"{place}: the server refused the user or password; put the right ones into the URL "
                "(redis://user:password@host)"
            )
        case "NOPERM":
            return ConfigurationError(
                f"{place}: the server's access list forbids this user something Tidemill needs ({text}); "
                "the page on deploying on Redis has the ACL line"
            )
        case "DENIED":
            return ConfigurationError(
                f"{place}: the server is in protected mode and answers only its own machine; set a "
                "password or bind address on it"
            )
        case "OOM":
            return StoreFull(
                f"{place}: the server's memory is full (maxmemory); raise it or let jobs be pruned, work "
                "goes on by itself"
            )
        case "MISCONF":
            return StoreFull(
                f"{place}: the server cannot write to its disk and accepts nothing; look at its log and free "
                "space, work goes on by itself"
            )
        case "READONLY":
            return StoreReadOnly(
                f"{place}: the server is a read-only replica; name the primary in the URL, or its Sentinels "
                "(redis+sentinel://)"
            )
        case word if word in AGAIN:
            return StoreUnavailable(f"{place}: the server is not ready ({text})")
        case _:
            return StoreError(f"{place}: the server refused: {text}")
