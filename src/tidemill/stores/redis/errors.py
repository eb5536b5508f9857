"""Translates error replies of the server into Tidemill's errors. Each message says what happened and what to
do."""

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

MOVED_CODES = ("READONLY", "MOVED", "MASTERDOWN")
"""Another server is the primary, or will be soon."""
RETRYABLE_CODES = (*MOVED_CODES, "ASK", "LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "NOREPLICAS")
"""The server refused the command before it did anything; a retry may succeed."""

_IN_SCRIPT = re.compile(r"^ERR Error running script.*?: -?([A-Z]{3,}) ")
"""Before version 7 Redis reports a refusal inside a script as a script error."""
_FORBIDDEN_IN_SCRIPT = re.compile(r"^ERR .*(ACL failure in script|The user executing the script can't)")
"""Redis reports a command that is forbidden only inside the script without the code NOPERM."""


class ConnectionLostError(Exception):
    """The connection ended or could not be made. A request in flight may or may not have been executed."""


class RedisReplyError(Exception):
    """An error reply of the server. The first word of its text is the error code, such as NOSCRIPT."""

    @property
    def word(self) -> str:
        text = str(self)
        if _FORBIDDEN_IN_SCRIPT.match(text):
            return "NOPERM"
        inside = _IN_SCRIPT.match(text)
        return inside[1] if inside else text.partition(" ")[0]


def translate_reply(reply: RedisReplyError, address: str) -> TidemillError:
    text = str(reply)
    match reply.word:
        case "WRONGPASS" | "NOAUTH":
            return ConfigurationError(
                f"{address}: the server refused the user or password; put the right ones into the URL "
                "(redis://user:password@host)"
            )
        case "NOPERM":
            return ConfigurationError(
                f"{address}: the server's access list forbids this user something Tidemill needs ({text}); "
                "the page on deploying on Redis has the ACL line"
            )
        case "DENIED":
            return ConfigurationError(
                f"{address}: the server is in protected mode and answers only its own machine; set a "
                "password or bind address on it"
            )
        case "OOM":
            return StoreFull(
                f"{address}: the server's memory is full (maxmemory); raise it or let jobs be pruned, work "
                "goes on by itself"
            )
        case "MISCONF":
            return StoreFull(
                f"{address}: the server cannot write to its disk and accepts nothing; look at its log and "
                "free space, work goes on by itself"
            )
        case "READONLY":
            return StoreReadOnly(
                f"{address}: the server is a read-only replica; name the primary in the URL, or its "
                "Sentinels (redis+sentinel://)"
            )
        case word if word in RETRYABLE_CODES:
            return StoreUnavailable(f"{address}: the server is not ready ({text})")
        case _:
            return StoreError(f"{address}: the server refused: {text}")
