"""The database file: it gets its permissions when it is created, and every step checks that it is there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from pathlib import Path
from typing import NamedTuple

from tidemill.errors import StoreUnavailable
from tidemill.urls import DEFAULT_MODE

OPEN_CONNECTION_BYTE = 128
"""Of the -shm file; SQLite calls it the dead man switch (UNIX_SHM_DMS)."""


class Location(NamedTuple):
    """An absolute path, and the device and inode of the file there."""

    path: str
    identity: tuple[int, int] | None


class DatabaseFile:
    """The file of one store. All connections of the store share this object.

    SQLite goes on writing to a file that was deleted or replaced: every job that it accepts there is lost,
    and a process that starts later works with another file."""

    def __init__(self, path: Path, mode: int = DEFAULT_MODE) -> None:
        self.path, self.mode = path, mode
        self._opened: Location | None = None

    def locate(self) -> Location:
        """Where a new connection finds the file. Creates the file if none was opened before."""
        if self._opened is not None:
            self.check()
            return self._opened
        absolute = os.path.abspath(self.path)  # noqa: PTH100 - links in it are followed at every check
        self._create(Path(os.path.realpath(absolute)))
        return Location(absolute, _identity(absolute))

    def remember(self, location: Location) -> None:
        """A connection is open. `location` was taken before, so that a file which was replaced meanwhile is
        noticed."""
        self._opened = self._opened or location

    def forget(self) -> None:
        """The next connection takes the file that is there then. No connection may be open."""
        self._opened = None

    def check(self) -> None:
        """Raises if the path no longer leads to the file that was opened."""
        opened = self._opened
        if opened is None:
            return
        found = _identity(opened.path)
        if found == opened.identity:
            return
        if found is None:
            raise StoreUnavailable(
                f"{self.path}: the database file was deleted or moved while it was in use, so no job is "
                "accepted; put it back, or restart this process to begin with a new file"
            )
        raise StoreUnavailable(
            f"{self.path}: the database file was replaced by another one while it was in use, so no job "
            f"is accepted; stop every process that uses it, delete {self.path.name}-wal and "
            f"{self.path.name}-shm if they are left of the old file, and start again"
        )

    def _create(self, target: Path) -> None:
        """The file appears with its permissions already set: SQLite copies them to the files beside it,
        and another process may open it at once.

        An existing file is never opened here: closing it would end the locks of all connections that this
        process has to it."""
        if os.path.exists(target):  # noqa: PTH110 - raises nothing
            return
        if _is_in_use(target.with_name(f"{target.name}-shm")):
            raise StoreUnavailable(
                f"{self.path}: the database file was deleted or moved while another process uses it, so no "
                "new one is created; put it back, or stop every process that uses it and start again"
            )
        draft = target.with_name(f"{target.name}.{os.getpid()}-{threading.get_ident()}.new")
        try:
            draft.touch(0o600)
            draft.chmod(self.mode)
            self._publish(draft, target)
        except OSError:
            return  # SQLite reports why
        finally:
            with contextlib.suppress(OSError):
                draft.unlink()

    def _publish(self, draft: Path, target: Path) -> None:
        try:
            os.link(draft, target)
        except FileExistsError:
            return  # another process was first
        except OSError:  # a file system without hard links
            target.touch(self.mode, exist_ok=False)
            target.chmod(self.mode)


def _is_in_use(shared_memory: Path) -> bool:
    """True if a connection is open to a database whose main file is gone. A new main file would share the
    index of that connection's write-ahead log, and every job in it would be lost.

    SQLite keeps a shared lock on this byte as long as a connection is open."""
    try:
        opened = os.open(shared_memory, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, OPEN_CONNECTION_BYTE)
    except OSError:
        return True
    finally:
        os.close(opened)
    return False


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - asked at every commit, at half the cost
    except OSError:
        return None
    return found.st_dev, found.st_ino
