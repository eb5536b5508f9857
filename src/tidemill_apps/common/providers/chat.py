"""A model that is asked something and answers as a JSON schema says."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec


class Completed(msgspec.Struct, frozen=True):
    """`text` is what the model wrote, to be parsed strictly: a schema is a wish, not a promise. `response`
    is for `ctx.used(…)`."""

    text: str
    response: object


class Chat(Protocol):
    async def complete(self, system: str, user: str, schema: dict[str, Any], *, mark: str) -> Completed:
        """One call, paid for. `mark` is sent to a simulator only, whose books tell calls by it. Raises what
        `tidemill_apps.common.providers` says, and AnswerUnusable for an answer that is none."""

    async def close(self) -> None:
        """Connections of this event loop. It may be used again."""
