"""Translates SQLite's errors into Tidemill's errors. Each message says what happened, to which file, and what
to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from tidemill.errors import StoreCorrupt, StoreError, StoreFull, StoreReadOnly, StoreUnavailable

_NO_SPACE = (apsw.SQLITE_IOERR_SHMSIZE,)
"""In all other cases SQLite raises FullError when the disk is full."""


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        raise translate_error(error, path) from error


def translate_error(error: apsw.Error, path: Path) -> StoreError:
    match error:
        case apsw.FullError():
            return _full(path)
        case apsw.IOError() if getattr(error, "extendedresult", 0) in _NO_SPACE:
            return _full(path)
        case apsw.IOError():
            # The message is often "not an error"; the extended code says what went wrong.
            code = apsw.mapping_extended_result_codes.get(getattr(error, "extendedresult", 0), "SQLITE_IOERR")
            return StoreUnavailable(
                f"{path}: the disk refused to read or write ({code}); check the disk, its quota and the "
                "limit on the size of files"
            )
        case apsw.BusyError() | apsw.LockedError():
            return StoreUnavailable(
                f"{path}: another process held the database for too long; "
                "look for a stopped process or a long transaction on this file"
            )
        case apsw.ReadOnlyError() | apsw.PermissionsError():
            return StoreReadOnly(
                f"{path}: the database may not be written to; give this user write permission "
                "on the file and its folder"
            )
        case apsw.CantOpenError():
            return StoreUnavailable(
                f"{path}: the database cannot be opened; check that the folder exists and is writable"
            )
        case apsw.NotADBError():
            return StoreCorrupt(f"{path}: this is not a SQLite database; name another file in the URL")
        case apsw.CorruptError():
            return StoreCorrupt(
                f"{path}: the database is damaged; stop every worker, keep a copy and recover it "
                "with the sqlite3 shell's .recover"
            )
        case _:
            return StoreError(f"{path}: {type(error).__name__}: {error}")


def _full(path: Path) -> StoreFull:
    return StoreFull(f"{path}: no space left on the disk; free some, work goes on by itself")
