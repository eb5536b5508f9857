"""Files in responses and request bodies: `File` that a handler returns, `Upload` that a route accepts."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tidemill.errors import ConfigurationError

_LINE_ENDS = re.compile(r"[\r\n\0]")
_MEDIA_TYPE_PATTERN = re.compile(r"[a-z0-9!#$&^_.+-]+/([a-z0-9!#$&^_.+-]+|\*)")


class ObjectStore(Protocol):
    """An object store of the library `obstore`, such as `obstore.store.S3Store`. A `File` needs these
    methods:

    - `head_async`: returns size, ETag and time of an object
    - `get_async`: returns the bytes of an object, or a range of them"""

    async def head_async(self, path: str, /) -> Any: ...

    async def get_async(self, path: str, /, *, options: Any = None) -> Any: ...


@dataclass(frozen=True)
class File:
    """A file that a handler returns: `File("7/cover.png", folder="/srv/media")`.

    The server streams the file and answers Range, HEAD and conditional requests.

    - `path`: the path of the file below `folder`, or its key in `store`. It may come from the request: a path
      that leaves the folder gets 404, also through a symbolic link
    - `folder`, `store`: the folder on disk, or the object store of `obstore`. Give one of them
    - `media_type`: by default it follows from the ending of `filename` or `path`
    - `filename`: the browser saves the file under this name instead of showing it
    - `headers`: more response headers; they replace the headers that the server would send"""

    path: str
    folder: str | Path | None = None
    store: ObjectStore | None = None
    media_type: str | None = None
    filename: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.folder is None) == (self.store is None):
            given = "neither" if self.folder is None else "both"
            raise ConfigurationError(f"folder: of a File give either folder or store, not {given}")
        for name, value in {**self.headers, "media_type": self.media_type or ""}.items():
            if _LINE_ENDS.search(name + value):
                raise ConfigurationError(f"{name[:50]!r}: a header of a File must be one line, is {value!r}")


@dataclass(frozen=True)
class Upload:
    """The body of a route that accepts a file of any size up to `max_bytes`, as a stream:
    `body=Upload(max_bytes=500_000_000, media_types=("audio/*",))`.

    The request body is the file itself. The handler receives an `UploadStream` as `request.body`.
    `media_types` are the accepted content types, such as `audio/*`; by default every content type is
    accepted."""

    max_bytes: int
    media_types: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.max_bytes, bool) or not isinstance(self.max_bytes, int) or self.max_bytes < 1:
            raise ConfigurationError(
                f"max_bytes: of an Upload must be a number of bytes above 0, is {self.max_bytes!r}"
            )
        if isinstance(self.media_types, str):
            raise ConfigurationError(
                f"media_types: must be a tuple such as ('audio/mpeg',), is {self.media_types!r}"
            )
        for media_type in self.media_types:
            if _MEDIA_TYPE_PATTERN.fullmatch(media_type) is None:
                raise ConfigurationError(
                    f"media_types: must be like audio/mpeg or audio/*, in lower case, is {media_type!r}"
                )

    def accepts(self, media_type: str) -> bool:
        """True if a file with this content type may be uploaded."""
        general = f"{media_type.partition('/')[0]}/*"
        return not self.media_types or media_type in self.media_types or general in self.media_types


class UploadStream:
    """The file of an upload, as chunks of bytes: `async for chunk in request.body`. It can be read once.

    - `media_type`: the content type that the client declares, such as `audio/mpeg`; empty if it declares none
    - `filename`: the name that the client declares, without folders; None if it declares none
    - `length`: the size in bytes that the client declares; None if it is unknown
    - `received`: the number of bytes read so far

    Reading raises `HTTPError` if the file is too large (413) or the client ends the upload early (400). The
    handler then removes what it has stored and lets the error pass."""

    def __init__(
        self, chunks: AsyncIterator[bytes], *, media_type: str, filename: str | None, length: int | None
    ) -> None:
        self._source = chunks
        self.media_type, self.filename, self.length = media_type, filename, length
        self.received = 0

    def __aiter__(self) -> UploadStream:
        return self

    async def __anext__(self) -> bytes:
        chunk = await anext(self._source)
        self.received += len(chunk)
        return chunk
