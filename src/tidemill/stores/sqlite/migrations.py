"""Creates or migrates the schema. Refuses a file of another program or of a newer Tidemill."""

from __future__ import annotations

from pathlib import Path

import apsw

from tidemill.errors import SchemaMismatch, StoreCorrupt
from tidemill.stores.sqlite.statements import load_migrations, load_statements

SQL = load_statements("migrations")
APPLICATION_ID = 0x54494445  # "TIDE"


def migrate(connection: apsw.Connection, path: Path) -> None:
    migrations = load_migrations()
    if connection.pragma("user_version") == migrations[-1][0]:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have written to the file while this one waited for the lock.
        version = check_owner(connection, path)
        for number, script in migrations:
            if number > version:
                connection.execute(script)
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", migrations[-1][0])
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def check_owner(connection: apsw.Connection, path: Path) -> int:
    """Returns the schema version of the file; 0 for a new file. Raises StoreCorrupt for the database of
    another program, and SchemaMismatch for a newer schema."""
    version: int
    version, owner, tables = connection.execute(SQL.owner).get
    if owner != APPLICATION_ID and (tables or version):
        raise StoreCorrupt(f"{path}: this is another program's database; name another file in the URL")
    newest = load_migrations()[-1][0]
    if version > newest:
        raise SchemaMismatch(
            f"{path}: its schema has version {version}, this Tidemill knows up to {newest}; "
            "upgrade tidemill on this machine, or use another file"
        )
    return version
