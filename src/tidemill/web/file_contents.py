"""Reads files below a folder and objects of an object store, in chunks, for responses."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tidemill.http_routes.files import File, ObjectStore
from tidemill.http_routes.problems import HTTPError

FILE_CHUNK_BYTES = 256 * 1024
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""`O_NONBLOCK`, because opening a named pipe would otherwise wait for a writer."""


_MISSING_ERRORS = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)


class FileChangedError(Exception):
    """The file was removed or replaced while it was sent. The server then ends the connection."""


class FileContent(Protocol):
    """The content of a file.

    - `size`: in bytes
    - `modified`: a Unix time
    - `etag`: with its quotes; None if an object store has none
    - `chunks`: yields the bytes from `start` up to, but not including, `end`"""

    size: int
    modified: float
    etag: str | None

    def chunks(self, start: int, end: int) -> AsyncIterator[bytes]: ...


async def open_content(file: File) -> FileContent:
    """Returns the content of the file. Raises HTTPError 404 if its folder or store has no such file."""
    if not _is_safe_path(file.path):
        raise _not_found(file)
    try:
        if file.store is not None:
            return await _open_object(file.store, file.path)
        folder = Path(file.folder or "")
        return await asyncio.to_thread(_open_below, folder, file.path)
    except ValueError:  # leads out of the folder, or is no key of the object store
        raise _not_found(file) from None
    except OSError as error:
        if error.errno not in _MISSING_ERRORS and not isinstance(error, FileNotFoundError):
            raise
        raise _not_found(file) from None


def _is_safe_path(path: str) -> bool:
    """True if the path consists of names only: it is relative and has no `..`, no empty part and no NUL."""
    return not any(part in ("", ".", "..") for part in path.split("/")) and not {"\0", "\\"} & {*path}


def _not_found(file: File) -> HTTPError:
    return HTTPError(HTTPStatus.NOT_FOUND, f"there is no file {file.path[:200]!r}")


class _FileVersion(NamedTuple):
    inode: int
    changed_ns: int
    size: int


class FolderContent:
    """A file below a folder. Each chunk opens the file again, so a slow client holds no open file. Raises
    FileChangedError if the file has changed since this object was created."""

    def __init__(self, root: Path, parts: tuple[str, ...], found: os.stat_result) -> None:
        self._root, self._parts, self._version = root, parts, _version(found)
        self.size, self.modified = found.st_size, found.st_mtime
        self.etag: str | None = f'"{found.st_mtime_ns:x}-{found.st_size:x}"'

    async def chunks(self, start: int, end: int) -> AsyncIterator[bytes]:
        while start < end:
            chunk = await asyncio.to_thread(self._read, start, min(FILE_CHUNK_BYTES, end - start))
            start += len(chunk)
            yield chunk

    def _read(self, start: int, count: int) -> bytes:
        try:
            handle, found = _open_parts(self._root, self._parts)
        except OSError as error:
            raise FileChangedError(f"{'/'.join(self._parts)} was removed while it was sent") from error
        try:
            os.lseek(handle, start, os.SEEK_SET)
            chunk = os.read(handle, count) if _version(found) == self._version else b""
        finally:
            os.close(handle)
        if not chunk:
            raise FileChangedError(f"{'/'.join(self._parts)} was replaced or cut while it was sent")
        return chunk


def _open_below(folder: Path, path: str) -> FolderContent:
    root = Path(os.path.realpath(folder, strict=True))
    target = Path(os.path.realpath(root / path, strict=True))
    parts = target.relative_to(root).parts  # raises ValueError if a symbolic link leads out of the folder
    handle, found = _open_parts(root, parts)
    os.close(handle)
    return FolderContent(root, parts, found)


def _open_parts(root: Path, parts: tuple[str, ...]) -> tuple[int, os.stat_result]:
    """Opens the regular file at `parts` below `root`; no part may be a symbolic link. Returns the file
    descriptor and the status of the file."""
    if os.open not in os.supports_dir_fd:  # Windows
        return _checked(os.open(root.joinpath(*parts), _OPEN_FLAGS))
    handle = os.open(root, _OPEN_FLAGS)
    for part in parts:
        parent = handle
        try:
            # The path is resolved, so a link was put here after the check.
            handle = os.open(part, _OPEN_FLAGS | _NO_LINKS, dir_fd=parent)
        finally:
            os.close(parent)
    return _checked(handle)


def _checked(handle: int) -> tuple[int, os.stat_result]:
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        os.close(handle)
        raise FileNotFoundError
    return handle, found


def _version(found: os.stat_result) -> _FileVersion:
    return _FileVersion(found.st_ino, found.st_mtime_ns, found.st_size)


class ObjectContent:
    """An object of an object store."""

    def __init__(self, store: ObjectStore, path: str, meta: Any) -> None:
        self._store, self._path = store, path
        self.size, self.modified = meta["size"], meta["last_modified"].timestamp()
        self.etag = _quoted(meta["e_tag"])
        self._options = {} if meta["e_tag"] is None else {"if_match": meta["e_tag"]}

    async def chunks(self, start: int, end: int) -> AsyncIterator[bytes]:
        if start == end:
            return
        result = await self._store.get_async(self._path, options={"range": (start, end), **self._options})
        async for chunk in result.stream(min_chunk_size=FILE_CHUNK_BYTES):
            start += len(chunk)
            for offset in range(0, len(chunk), FILE_CHUNK_BYTES):
                yield bytes(chunk[offset : offset + FILE_CHUNK_BYTES])
        if start != end:
            raise FileChangedError(f"{self._path} was replaced or cut while it was sent")


async def _open_object(store: ObjectStore, path: str) -> ObjectContent:
    return ObjectContent(store, path, await store.head_async(path))


def _quoted(etag: str | None) -> str | None:
    if etag is None or etag.removeprefix("W/").startswith('"'):
        return etag
    return f'"{etag}"'
