"""The tables of an application and its jobs are never in one file."""

from __future__ import annotations

from pathlib import Path

from tidemill import ConfigurationError, Tidemill

_SQLITE = "sqlite:///"


def keep_apart(app: Tidemill, database_url: str, variable: str) -> None:
    """Two who write to a file of SQLite by rules of their own keep each other waiting, and a copy or a
    compaction of one is one of the other."""
    jobs, tables = str(app.url), database_url
    if not (jobs.startswith(_SQLITE) and tables.startswith(_SQLITE)):
        return
    here, there = (Path(url.removeprefix(_SQLITE)).resolve() for url in (jobs, tables))
    if here == there:
        raise ConfigurationError(
            f"{variable}: {there.name} is the file of the jobs; name another one for the application's tables"
        )
