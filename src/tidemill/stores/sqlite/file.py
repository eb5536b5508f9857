"""The database file: its permissions, checks that the file was not deleted or replaced, and warnings about
its location."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import apsw

from tidemill.errors import StoreUnavailable
from tidemill.store_url import DEFAULT_FILE_MODE

OPEN_CONNECTION_BYTE = 128
"""Byte of the -shm file that SQLite locks while a connection is open (UNIX_SHM_DMS, the dead man switch)."""


class FileLocation(NamedTuple):
    """The absolute path of the database file, and its identity (device, inode). `identity` is None if there
    is no file."""

    path: str
    identity: tuple[int, int] | None


class DatabaseFile:
    """The database file of one store, shared by all connections to it. Detects that the file was deleted or
    replaced: SQLite would keep writing to the lost file. `mode`: the permissions of a new file."""

    def __init__(self, path: Path, mode: int = DEFAULT_FILE_MODE) -> None:
        self.path, self.mode = path, mode
        self._opened: FileLocation | None = None

    def locate(self) -> FileLocation:
        """Returns the location that a new connection opens. The first call creates the file if none exists.
        Raises StoreUnavailable if the opened file was deleted or replaced."""
        if self._opened is not None:
            self.check()
            return self._opened
        absolute = os.path.abspath(self.path)  # noqa: PTH100 - links in it are followed at every check
        self._create(Path(os.path.realpath(absolute)))
        return FileLocation(absolute, _identity(absolute))

    def remember(self, location: FileLocation) -> None:
        """Records `location` as the opened file, unless one is recorded already. The caller must read
        `location` before it connects, so that `check` detects a replaced file."""
        self._opened = self._opened or location

    def forget(self) -> None:
        """Forgets the opened file. The next connection opens the file that is at the path then. Call this
        method only when no connection is open."""
        self._opened = None

    def check(self) -> None:
        """Raises StoreUnavailable if the path no longer leads to the opened file. Does nothing if no file was
        opened."""
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
        """Creates the database file with its final permissions, if no file exists. Never opens an existing
        file: closing it would release this process's locks on the file."""
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
            draft.chmod(self.mode)  # before others see the file: SQLite copies the mode to -wal and -shm
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
    """True if a connection is still open to a database whose main file was deleted. A new main file would
    lose jobs then. `shared_memory`: the path of SQLite's -shm file."""
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


OLDEST_SAFE_SQLITE = (3, 51, 3)
LOW_DISK_BYTES = 100 * 1024 * 1024

_NETWORK_FILE_SYSTEMS = re.compile(
    r"(fuse\.)?(nfs4?|cifs|smb\w*|9p|afs|ceph|lustre|glusterfs|gpfs|ncpfs|davfs2?|beegfs|sshfs|rclone|s3fs|gcsfuse)"
)
"""File system types that other machines can reach too."""
_OCTAL = re.compile(r"\\([0-7]{3})")


def file_warnings(path: Path, journal_mode: str, mode: int) -> Iterator[str]:
    """Yields a sentence for each problem with the database file, such as a network file system. `mode`: the
    permissions that the store's URL asks for."""
    if warning := old_sqlite_warning(apsw.sqlite_lib_version()):
        yield warning
    if kind := network_file_system(path.resolve(), read_mounts()):
        yield (
            f"{path} lies on a network file system ({kind}): its write-ahead log needs memory that all "
            "processes share, so two machines can damage it; move it to a local disk"
        )
    free = shutil.disk_usage(path.parent).free
    if free < LOW_DISK_BYTES:
        yield (
            f"only {free // 2**20} MB are left on the disk of {path}: when it is full no job is accepted; "
            "free some, or compact the store"
        )
    if journal_mode != "wal":
        yield (
            f"{path} is in journal mode {journal_mode}: readers and writers wait for each other; "
            "another program has switched it, close that and open the store again"
        )
    if path.exists() and (warning := public_file_warning(path, mode)):
        yield warning


def public_file_warning(path: Path, mode: int) -> str | None:
    found = stat.S_IMODE(path.stat().st_mode)
    if not found & ~mode & stat.S_IROTH:
        return None
    return (
        f"{path} can be read by every user of this machine (mode {found:04o}), with all that jobs hold; run "
        f"chmod o-rwx {path}*, or name the mode in the URL (?mode={found:04o}) if that is meant"
    )


def old_sqlite_warning(version: str) -> str | None:
    if tuple(map(int, version.split(".")[:3])) >= OLDEST_SAFE_SQLITE:
        return None
    return (
        f"SQLite {version} can lose committed rows when several processes write (the WAL-reset bug, fixed "
        "in 3.51.3); install apsw from its wheel, which carries a newer SQLite"
    )


def read_mounts() -> str:
    """Returns the text of /proc/self/mountinfo, the list of mounted file systems. Returns an empty text on
    systems without this file."""
    try:
        return Path("/proc/self/mountinfo").read_text()
    except OSError:
        return ""


def network_file_system(path: Path, mountinfo: str) -> str | None:
    """Returns the type of the network file system that holds `path`, such as `nfs4`; None on a local file
    system. `mountinfo`: the text from `read_mounts`."""
    best, kind = -1, ""
    for line in mountinfo.splitlines():
        mount, _, source = line.partition(" - ")
        fields, found = mount.split(), source.split()
        if len(fields) < 5 or not found:  # noqa: PLR2004 - the fifth is the mount point
            continue
        point = Path(_OCTAL.sub(lambda digits: chr(int(digits[1], 8)), fields[4]))
        # The last mount on a path hides the earlier ones.
        if path.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), found[0]
    return kind if _NETWORK_FILE_SYSTEMS.fullmatch(kind) else None
