"""Opening the file: pragmas, the schema, and everything that can be wrong with a path."""

from __future__ import annotations

import time
from pathlib import Path

import apsw

from tidemill.errors import SchemaMismatch, StoreCorrupt, StoreUnavailable
from tidemill.stores.sqlite.faults import translated
from tidemill.stores.sqlite.file import DatabaseFile
from tidemill.stores.sqlite.statements import load, migrations

SQL = load("connection")
APPLICATION_ID = 0x54494445  # "TIDE"
BUSY_PATIENCE = 3.5
"""Seconds, below the 5 an enqueue may take, so that a locked file is reported and not a timeout."""
CACHE_KIB = 32 * 1024


def connect(file: DatabaseFile, patience: Patience) -> apsw.Connection:
    """A connection ready for work on a schema of this version."""
    path = file.path
    if not path.parent.is_dir():
        raise StoreUnavailable(f"{path}: the folder {path.parent} does not exist; create it first")
    if path.is_dir():
        raise StoreUnavailable(f"{path}: this is a folder; name a file in it")
    with translated(path):
        location = file.locate()
        flags = apsw.SQLITE_OPEN_READWRITE  # SQLite itself would create the file with other permissions
        connection = apsw.Connection(location.path, flags=flags, statementcachesize=200)
        try:
            connection.set_busy_handler(patience.wait)
            _check_owner(connection, path)
            _prepare(connection, path, patience)
            _migrate(connection, path)
        except BaseException:
            connection.close()
            raise
    file.remember(location)
    return connection


def _prepare(connection: apsw.Connection, path: Path, patience: Patience) -> None:
    # Without it every changed parameter plans the statement anew: a claim took twice as long.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    if _use_log(connection, patience) != "wal":
        raise StoreUnavailable(
            f"{path}: the file system cannot share a write-ahead log; put the file on a local disk"
        )
    connection.pragma("synchronous", "full")
    connection.pragma("wal_autocheckpoint", 1000)
    connection.pragma("cache_size", -CACHE_KIB)
    connection.pragma("temp_store", "memory")


def _use_log(connection: apsw.Connection, patience: Patience) -> str:
    """Changes the journal mode. SQLite asks no busy handler here: of two processes that open a fresh file
    at once, one is refused while the other changes it."""
    tries = 0
    while True:
        try:
            mode: str = connection.pragma("journal_mode", "wal")
        except apsw.BusyError:
            if not patience.wait(tries):
                raise
            tries += 1
        else:
            return mode


class Patience:
    """How long a connection still waits for others to let go of the file.

    SQLite's own waiting sleeps in steps up to 100 ms; transactions here last about one."""

    def __init__(self) -> None:
        self.left = BUSY_PATIENCE

    def wait(self, tries: int) -> bool:
        if self.left <= 0:
            return False
        nap = min(0.0001 * (tries + 1), 0.002)
        self.left -= nap
        time.sleep(nap)
        return True


def _migrate(connection: apsw.Connection, path: Path) -> None:
    steps = migrations()
    if connection.pragma("user_version") == steps[-1][0]:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have written to the file while this one waited for the lock.
        version = _check_owner(connection, path)
        for number, script in steps:
            if number > version:
                connection.execute(script)
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", steps[-1][0])
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _check_owner(connection: apsw.Connection, path: Path) -> int:
    """The schema version. A file with someone else's tables in it, or with ones of ours this version does
    not know, is never touched."""
    version: int
    version, owner, tables = connection.execute(SQL.owner).get
    if owner != APPLICATION_ID and (tables or version):
        raise StoreCorrupt(f"{path}: this is another program's database; name another file in the URL")
    oldest, newest = migrations()[0][0], migrations()[-1][0]
    if 0 < version < oldest:
        raise SchemaMismatch(
            f"{path}: it was made by a Tidemill from before 0.1.0 (schema version {version}), which no "
            "release can read; use another file"
        )
    if version > newest:
        raise SchemaMismatch(
            f"{path}: its schema has version {version}, this Tidemill knows up to {newest}; "
            "upgrade tidemill on this machine, or use another file"
        )
    return version
