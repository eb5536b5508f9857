"""The end of a job together with what its handler writes."""

from __future__ import annotations

from typing import Any

from tidemill.errors import ConfigurationError


class Transaction:
    """What `async with ctx.transaction() as tx:` gives. `tx.connection` is an asyncpg connection with a
    transaction open on it; when the block ends, the job is done and all of it commits, or nothing does."""

    __slots__ = ("connection", "result")

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.result: Any = None

    def done(self, result: Any) -> None:
        """The job's result. What the handler returns afterwards is not stored."""
        self.result = result


def refused_inside(verb: str) -> ConfigurationError:
    return ConfigurationError(
        f"{verb} inside ctx.transaction(): a transaction must not stay open across a call that takes its "
        "time; make the call before the block"
    )


def no_database() -> ConfigurationError:
    return ConfigurationError(
        "ctx.transaction(): this store is not in a database that a handler could write to with it; use a "
        "postgresql:// store, or write your rows and let the handler return"
    )
