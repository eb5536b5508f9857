"""As much of HTTP/1.1 as a client of an API needs: requests with a length, answers with a length or in
chunks, one connection for many calls."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import msgspec

from tidemill.testing.providers.asked import Answer, Request

LARGEST = 16 * 1024 * 1024


class NotHTTP(Exception):
    """What came cannot be read; the sentence goes back to the caller and the connection ends."""


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """None when the caller has gone."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    except asyncio.LimitOverrunError as error:
        raise NotHTTP("the headers are too long") from error
    first, *lines = head.decode("latin-1").split("\r\n")
    try:
        method, path, _ = first.split(" ", 2)
        pairs = [line.split(":", 1) for line in lines if line]
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
        length = int(headers.get("content-length", "0"))
    except ValueError as error:
        raise NotHTTP("this is not an HTTP request") from error
    if "transfer-encoding" in headers or not 0 <= length <= LARGEST:
        raise NotHTTP(f"send the body with a content-length of at most {LARGEST}")
    try:
        raw = await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return Request(path, _body(raw), headers, method)


def written(answer: Answer) -> bytes:
    return encoded(answer.status, answer.headers, msgspec.json.encode(answer.body))


def encoded(status: int, headers: dict[str, str], body: bytes) -> bytes:
    return encoded_head(status, headers | {"content-length": str(len(body))}) + body


def encoded_head(status: int, headers: dict[str, str]) -> bytes:
    known = {one.value: one.phrase for one in HTTPStatus}
    lines = [f"HTTP/1.1 {status} {known.get(status, 'Overloaded')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _body(raw: bytes) -> dict[str, Any]:
    if not raw:
        return {}
    try:
        found = msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise NotHTTP(f"the body is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise NotHTTP("the body must be a JSON object")
    return found
