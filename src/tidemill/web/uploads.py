"""Reads the body of an upload route as a stream, with a size limit."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from email.message import Message
from http import HTTPStatus

from starlette.requests import ClientDisconnect, Request

from tidemill.core.validation import format_bytes
from tidemill.http_routes.files import Upload, UploadStream
from tidemill.http_routes.problems import HTTPError

UPLOAD_WAIT_KEY = "tidemill.upload"
"""Key in the state of a request: since when the server waits for the next bytes of an upload, as time of the
event loop. Infinity while the handler works. The server closes a connection that waits too long."""


_FORM_TYPES = ("multipart/form-data", "application/x-www-form-urlencoded")


def open_upload(upload: Upload, request: Request, media_type: str) -> UploadStream:
    """Returns the stream of an upload, before any byte of it is read. Raises HTTPError: 415 if the content
    type is not accepted, 413 if the declared length is over the limit."""
    if media_type in _FORM_TYPES:
        raise HTTPError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "content-type: must be that of the file; send the file itself as the body, without a form",
            field="content-type",
        )
    if not upload.accepts(media_type):
        raise HTTPError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"content-type: must be one of {', '.join(upload.media_types)}, is {media_type or 'missing'}",
            field="content-type",
        )
    length = _declared_length(request)
    if length is not None and length > upload.max_bytes:
        raise _too_large(upload)
    return UploadStream(
        _read_chunks(upload, request),
        media_type=media_type,
        filename=_declared_name(request.headers.get("content-disposition")),
        length=length,
    )


async def _read_chunks(upload: Upload, request: Request) -> AsyncIterator[bytes]:
    state = request.scope.setdefault("state", {})
    loop = asyncio.get_running_loop()
    size = 0
    state[UPLOAD_WAIT_KEY] = loop.time()
    try:
        async for chunk in request.stream():
            state[UPLOAD_WAIT_KEY] = math.inf
            size += len(chunk)
            if size > upload.max_bytes:
                raise _too_large(upload)
            if chunk:
                yield chunk
            state[UPLOAD_WAIT_KEY] = loop.time()
    except ClientDisconnect:
        raise HTTPError(
            HTTPStatus.BAD_REQUEST, "body: the client ended the upload early; send it again"
        ) from None


def _too_large(upload: Upload) -> HTTPError:
    return HTTPError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the file is over {format_bytes(upload.max_bytes)}; send a smaller one",
    )


def _declared_length(request: Request) -> int | None:
    text = request.headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() else None


def _declared_name(content_disposition: str | None) -> str | None:
    """Returns the filename of a Content-Disposition header without folders and control characters."""
    if content_disposition is None:
        return None
    message = Message()
    message["content-disposition"] = content_disposition
    name = (message.get_filename() or "").replace("\\", "/").rpartition("/")[2]
    return "".join(character for character in name if character.isprintable()).strip() or None
