"""What went wrong with a database, in one sentence and without its password."""

from __future__ import annotations

import re

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, InterfaceError

from tidemill import ConfigurationError, StoreUnavailable, TidemillError

EXAMPLE = "sqlite:///music.db"
_WORDS = (
    ("database or disk is full", "the disk is full; make room, work goes on by itself"),
    ("readonly database", "it may not be written to; give this user the right to write the file"),
    (
        "unable to open database file",
        "the file cannot be opened; is its folder there, and may it be written?",
    ),
    ("not a database", "the file is no SQLite database; name another one"),
    ("database is locked", "somebody else has been writing for too long; is another program holding it?"),
)


class DatabaseUnavailable(StoreUnavailable):
    """The application's own database cannot be used now; a route answers 503 with the sentence."""


class StatementRefused(TidemillError):
    """The application's own database refused a statement. The message has no SQL: people read it in a status.
    `said` are the database's own words."""

    def __init__(self, problem: str, said: str) -> None:
        super().__init__(problem)
        self.said = said


class RowRefused(StatementRefused):
    """The table does not take the row, and nothing is changed; a route answers 409 with the sentence."""


def refused(place: str, error: DBAPIError) -> StatementRefused:
    """For what `sentence` says nothing of."""
    said = words_of(error)
    problem = (
        f"the database {place} refused a statement: {said}; see whether its tables are as they should be"
    )
    return (RowRefused if isinstance(error, IntegrityError) else StatementRefused)(problem, said)


def words_of(error: DBAPIError) -> str:
    """The driver's first line, without its class."""
    return re.sub(r"^<class '[^']*'>: ", "", str(error.orig)).partition("\n")[0]


def named(variable: str, told: str) -> str:
    """Behind the variable that the database was named by, when there is one."""
    return f"{variable}: {told}" if variable else told


def place_of(url: str, variable: str = "", example: str = EXAMPLE) -> str:
    """Where it is, as it may be shown. Raises ConfigurationError for what is no such place."""
    remedy = f"write it as {example} or postgresql://user:password@host/name"
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        problem = "the address of the database is not one"
        raise ConfigurationError(named(variable, f"{problem}; {remedy}")) from None
    if parsed.drivername == "sqlite":
        if not parsed.database or parsed.query or parsed.host:
            problem = "the address of the database names no file"
            raise ConfigurationError(named(variable, f"{problem}; {remedy}"))
        return parsed.database
    if parsed.drivername not in ("postgresql", "postgres"):
        problem = f"databases by {parsed.drivername!r} are not known here"
        raise ConfigurationError(named(variable, f"{problem}; {remedy}"))
    return f"{parsed.host or 'localhost'}:{parsed.port or 5432}/{parsed.database or ''}"


def sentence(place: str, error: DBAPIError | OSError, *, connected: bool) -> str | None:
    """None when it is about what was asked, and not about the database."""
    if isinstance(error, OSError):
        if connected:  # a file that the caller wanted, in the middle of a transaction
            return None
        return f"the database {place} cannot be reached: {error.strerror or error}; is it running?"
    said = words_of(error)
    for words, told in _WORDS:
        if words in said:
            return f"the database {place}: {told}"
    if not connected:
        return f"the database {place} cannot be used: {said}"
    if error.connection_invalidated or isinstance(error, InterfaceError):
        return f"the database {place} went away: {said}"
    return None
