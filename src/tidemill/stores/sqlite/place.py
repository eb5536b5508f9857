"""Where the file lies and with what it is read: what can be wrong with either, as whole sentences."""

from __future__ import annotations

import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import apsw

SOUND_SQLITE = (3, 51, 3)
LITTLE_SPACE = 100 * 1024 * 1024

_NETWORK = re.compile(
    r"(fuse\.)?(nfs4?|cifs|smb\w*|9p|afs|ceph|lustre|glusterfs|gpfs|ncpfs|davfs2?|beegfs|sshfs|rclone|s3fs|gcsfuse)"
)
"""Types of file systems that other machines can reach too."""
_OCTAL = re.compile(r"\\([0-7]{3})")


def warnings(path: Path, journal_mode: str, mode: int) -> Iterator[str]:
    """`mode` are the permissions that the URL asks for."""
    if warning := old_sqlite(apsw.sqlite_lib_version()):
        yield warning
    if kind := network_file_system(path.resolve(), mounts()):
        yield (
            f"{path} lies on a network file system ({kind}): its write-ahead log needs memory that all "
            "processes share, so two machines can damage it; move it to a local disk"
        )
    free = shutil.disk_usage(path.parent).free
    if free < LITTLE_SPACE:
        yield (
            f"only {free // 2**20} MB are left on the disk of {path}: when it is full no job is accepted; "
            "free some, or compact the store"
        )
    if journal_mode != "wal":
        yield (
            f"{path} is in journal mode {journal_mode}: readers and writers wait for each other; "
            "another program has switched it, close that and open the store again"
        )
    if path.exists() and (warning := open_to_all(path, mode)):
        yield warning


def open_to_all(path: Path, wanted: int) -> str | None:
    found = stat.S_IMODE(path.stat().st_mode)
    if not found & ~wanted & stat.S_IROTH:
        return None
    return (
        f"{path} can be read by every user of this machine (mode {found:04o}), with all that jobs hold; run "
        f"chmod o-rwx {path}*, or name the mode in the URL (?mode={found:04o}) if that is meant"
    )


def old_sqlite(version: str) -> str | None:
    if tuple(map(int, version.split(".")[:3])) >= SOUND_SQLITE:
        return None
    return (
        f"SQLite {version} can lose committed rows when several processes write (the WAL-reset bug, fixed "
        "in 3.51.3); install apsw from its wheel, which carries a newer SQLite"
    )


def mounts() -> str:
    """The mounted file systems, as Linux lists them; nothing elsewhere."""
    try:
        return Path("/proc/self/mountinfo").read_text()
    except OSError:
        return ""


def network_file_system(path: Path, mountinfo: str) -> str | None:
    """The type of the file system a path is on, if it is one of a network."""
    best, kind = -1, ""
    for line in mountinfo.splitlines():
        place, _, source = line.partition(" - ")
        fields, found = place.split(), source.split()
        if len(fields) < 5 or not found:  # noqa: PLR2004 - the fifth is the mount point
            continue
        point = Path(_OCTAL.sub(lambda digits: chr(int(digits[1], 8)), fields[4]))
        # The last mount on a place hides those before it.
        if path.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), found[0]
    return kind if _NETWORK.fullmatch(kind) else None
