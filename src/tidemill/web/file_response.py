"""Answers a request for a `File`: Range, HEAD, conditional requests, and the headers of a download."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import AsyncIterator, Mapping
from email.utils import formatdate, parsedate_to_datetime
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tidemill.http_routes.files import File
from tidemill.http_routes.problems import HTTPError
from tidemill.web.file_contents import FileContent, open_content

_RANGE_PATTERN = re.compile(r"bytes=\s*([0-9]{0,18})-([0-9]{0,18})\s*", re.IGNORECASE)
_ETAG_PATTERN = re.compile(r'(?:W/)?("[^"]*")')
_UNSAFE_NAME_PATTERN = re.compile(r'[^\x20-\x7e]|["\\%]')
_FILE_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""A file may be a page that a stranger has uploaded. The sandbox keeps its scripts away from the session."""
_FILE_CACHE_CONTROL = "private, no-cache"
"""The browser may keep the file and must ask each time whether it may still show it."""


class ByteRange(NamedTuple):
    """The bytes from `start` up to, but not including, `end`."""

    start: int
    end: int


async def build_file_response(request: Request, file: File) -> Response:
    """Returns the response for a file. Raises HTTPError: 404 if the file does not exist, 416 if the requested
    range lies behind its end."""
    content = await open_content(file)
    headers = _file_headers(file, content)
    reads = request.method in ("GET", "HEAD")
    if reads and is_not_modified(request.headers, content):
        kept = {name: headers[name] for name in headers if name not in _CONTENT_HEADERS}
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=kept)
    part = requested_range(request.headers, content) if reads else None
    start, end = part or (0, content.size)
    if part is not None:
        headers["content-range"] = f"bytes {start}-{end - 1}/{content.size}"
    headers["content-length"] = str(end - start)
    return StreamingResponse(
        _no_chunks() if request.method == "HEAD" else content.chunks(start, end),
        HTTPStatus.OK if part is None else HTTPStatus.PARTIAL_CONTENT,
        headers=headers,
    )


_CONTENT_HEADERS = ("content-type", "content-disposition", "accept-ranges")


def _file_headers(file: File, content: FileContent) -> dict[str, str]:
    headers = {
        "content-type": file.media_type or _guess_media_type(file.filename or file.path),
        "accept-ranges": "bytes",
        "last-modified": formatdate(content.modified, usegmt=True),
        "cache-control": _FILE_CACHE_CONTROL,
        "content-security-policy": _FILE_SECURITY_POLICY,
        "x-content-type-options": "nosniff",
    }
    if content.etag is not None:
        headers["etag"] = content.etag
    if file.filename is not None:
        headers["content-disposition"] = _content_disposition(file.filename)
    return headers | {name.lower(): value for name, value in file.headers.items()}


def _guess_media_type(name: str) -> str:
    media_type, compression = mimetypes.guess_type(name)
    return "application/octet-stream" if media_type is None or compression else media_type


def _content_disposition(filename: str) -> str:
    """Returns the header with the name twice: in ASCII for old clients, and in full (RFC 6266)."""
    plain = _UNSAFE_NAME_PATTERN.sub("_", filename)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(filename, safe='')}"


def is_not_modified(headers: Mapping[str, str], content: FileContent) -> bool:
    """True if the client has the current version, by `If-None-Match` or else by `If-Modified-Since`."""
    if (known := headers.get("if-none-match")) is not None:
        etags = _ETAG_PATTERN.findall(known)
        return known.strip() == "*" or (content.etag is not None and content.etag.removeprefix("W/") in etags)
    since = _parse_date(headers.get("if-modified-since"))
    return since is not None and int(content.modified) <= since


def requested_range(headers: Mapping[str, str], content: FileContent) -> ByteRange | None:
    """Returns the range that the client requests; None if it gets the whole file.

    An invalid range, several ranges, and a range of another version of the file are ignored (RFC 9110).
    Raises HTTPError 416 if the file has no byte of the range."""
    found = _RANGE_PATTERN.fullmatch(headers.get("range", ""))
    if found is None or found[0].count("-") != 1 or not (found[1] or found[2]):
        return None
    if not _is_current_version(headers.get("if-range"), content):
        return None
    size = content.size
    if not found[1]:
        start, end = max(0, size - int(found[2])), size
    else:
        start, end = int(found[1]), min(size, int(found[2]) + 1 if found[2] else size)
        if found[2] and int(found[2]) < start:
            return None
    if start >= size or start >= end:
        raise HTTPError(
            HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
            f"range: must begin before the end of the file, which has {size} bytes",
            field="range",
            headers={"content-range": f"bytes */{size}"},
        )
    return ByteRange(start, end)


def _is_current_version(if_range: str | None, content: FileContent) -> bool:
    if if_range is None:
        return True
    if '"' in if_range:
        return if_range.strip() == content.etag and not if_range.startswith("W/")
    return _parse_date(if_range) == int(content.modified)


def _parse_date(text: str | None) -> float | None:
    try:
        return None if text is None else parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


async def _no_chunks() -> AsyncIterator[bytes]:
    return
    yield b""
