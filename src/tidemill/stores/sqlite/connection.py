"""Opening the file: pragmas, the schema, and everything that can be wrong with a path."""

from __future__ import annotations

import time
from pathlib import Path

import apsw

from tidemill.errors import SchemaMismatch, StoreCorrupt, StoreUnavailable
from tidemill.stores.sqlite.faults import translated
from tidemill.stores.sqlite.statements import migrations

APPLICATION_ID = 0x54494445  # "TIDE"
BUSY_PATIENCE = 3.5
"""Seconds, below the 5 an enqueue may take, so that a locked file is reported and not a timeout."""
CACHE_KIB = 32 * 1024


def connect(path: Path, patience: Patience | None = None) -> apsw.Connection:
    """A connection ready for work on a schema of this version."""
    if not path.parent.is_dir():
        raise StoreUnavailable(f"{path}: the folder {path.parent} does not exist; create it first")
    if path.is_dir():
        raise StoreUnavailable(f"{path}: this is a folder; name a file in it")
    with translated(path):
        connection = apsw.Connection(str(path), statementcachesize=200)
        try:
            connection.set_busy_handler((patience or Patience()).wait)
            _check_owner(connection, path)
            _prepare(connection, path)
            _migrate(connection)
        except BaseException:
            connection.close()
            raise
    return connection


def _prepare(connection: apsw.Connection, path: Path) -> None:
    # Without it every changed parameter plans the statement anew: a claim took twice as long.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    if connection.pragma("journal_mode", "wal") != "wal":
        raise StoreUnavailable(
            f"{path}: the file system cannot share a write-ahead log; put the file on a local disk"
        )
    connection.pragma("synchronous", "full")
    connection.pragma("wal_autocheckpoint", 1000)
    connection.pragma("cache_size", -CACHE_KIB)
    connection.pragma("temp_store", "memory")


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


def _migrate(connection: apsw.Connection) -> None:
    steps = migrations()
    if connection.pragma("user_version") == steps[-1][0]:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have done it while this one waited for the lock.
        version = connection.pragma("user_version")
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


def _check_owner(connection: apsw.Connection, path: Path) -> None:
    """A file with someone else's tables in it, or with ones of ours this version does not know, is never
    touched."""
    version = connection.pragma("user_version")
    owner = connection.pragma("application_id")
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
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
