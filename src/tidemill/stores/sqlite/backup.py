"""A copy of the file as of one instant, made while jobs go on."""

from __future__ import annotations

import os
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
    _reserve(target, part)
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


def _reserve(target: Path, part: Path) -> None:
    _refuse_existing(target)
    try:
        part.touch(exist_ok=False)
    except FileExistsError:
        raise ConfigurationError(
            f"{part}: another backup is being written here, or one was interrupted; delete it and try again"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"{target}: no backup can be written there: {error.strerror}") from None


def _refuse_existing(target: Path) -> None:
    if target.exists():
        raise ConfigurationError(f"{target}: there is such a file already; name one that does not exist")


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
