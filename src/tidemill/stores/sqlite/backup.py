"""A copy of the file as of one instant, made while jobs go on."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import apsw

from tidemill.errors import ConfigurationError
from tidemill.stores.sqlite.faults import translated

_PAGES_AT_ONCE = 1000


def backup(source: apsw.Connection, target: Path, progress: Callable[[float], None] | None) -> None:
    """`source` is in a read transaction, so that what others write meanwhile neither gets into the copy
    nor makes it begin again. The copy takes its name only when it is complete and on the disk."""
    source.pragma("schema_version")  # a transaction takes its instant with the first read
    part = target.with_name(f"{target.name}.part")
    _refuse_existing(target)
    _reserve(target, part, Path(source.db_filename("main")).stat().st_mode)
    try:
        with translated(target):
            _copy(source, part, progress)
        _sync(part)
        _refuse_existing(target)
        part.rename(target)
        _sync(target.parent)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _reserve(target: Path, part: Path, mode: int) -> None:
    """Whoever may not read the store may not read its copy, from its first byte on."""
    try:
        opened = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IRUSR | stat.S_IWUSR)
        try:
            os.fchmod(opened, stat.S_IMODE(mode))
        finally:
            os.close(opened)
    except FileExistsError:
        raise ConfigurationError(
            f"{part}: another backup is being written here, or one was interrupted; delete it and try again"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"{target}: no backup can be written there: {error.strerror}") from None


def _refuse_existing(target: Path) -> None:
    if os.path.lexists(target):
        raise ConfigurationError(f"{target}: there is such a file already; name one that does not exist")
    for ending in ("-wal", "-shm", "-journal"):
        left = target.with_name(f"{target.name}{ending}")
        if os.path.lexists(left):  # SQLite would take it for the copy's own, and show another store
            raise ConfigurationError(
                f"{left}: this was left by another database and would be taken for the copy's; "
                "move it to where that database is, or name another target"
            )


def _copy(source: apsw.Connection, part: Path, progress: Callable[[float], None] | None) -> None:
    copy = apsw.Connection(str(part))
    try:
        # Nobody reads it before it is complete, and then it is synced as a whole.
        copy.pragma("journal_mode", "off")
        copy.pragma("synchronous", "off")
        with copy.backup("main", source, "main") as copying:
            while not copying.done:
                copying.step(_PAGES_AT_ONCE)
                if progress is not None and copying.page_count:
                    progress(1 - copying.remaining / copying.page_count)
    finally:
        copy.close()


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
