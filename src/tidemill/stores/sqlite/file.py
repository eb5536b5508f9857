"""The database file: it gets its permissions when it is created, and every step checks that it is there."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

from tidemill.errors import StoreUnavailable
from tidemill.urls import DEFAULT_MODE


class DatabaseFile:
    """The file of one store. All connections of the store share this object.

    SQLite goes on writing to a file that was deleted or replaced: every job that it accepts there is lost,
    and a process that starts later works with another file."""

    def __init__(self, path: Path, mode: int = DEFAULT_MODE) -> None:
        self.path, self.mode = path, mode
        self._absolute: str | None = None
        self._identity: tuple[int, int] | None = None

    def locate(self) -> str:
        """The absolute path of the file for a new connection. Creates the file if it was never opened."""
        if self._identity is not None:
            self.check()
        if self._absolute is None:
            self._absolute = os.path.abspath(self.path)  # noqa: PTH100 - a path with '..' stays readable
        if self._identity is None:
            self._create(Path(self._absolute).resolve())
            with contextlib.suppress(OSError):  # SQLite reports why
                self._identity = _identity(self._absolute)
        return self._absolute

    def forget(self) -> None:
        """The next connection takes the file that is there then. No connection may be open."""
        self._absolute = self._identity = None

    def check(self) -> None:
        """Raises if the path no longer leads to the file that was opened."""
        if self._absolute is None or self._identity is None:
            return
        try:
            found = _identity(self._absolute)
        except OSError:
            raise StoreUnavailable(
                f"{self.path}: the database file was deleted or moved while it was in use, so no job is "
                "accepted; put it back, or restart this process to begin with a new file"
            ) from None
        if found != self._identity:
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
        if target.exists():
            return
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


def _identity(path: str) -> tuple[int, int]:
    found = os.stat(path)  # noqa: PTH116 - asked at every commit, at half the cost
    return found.st_dev, found.st_ino
