"""A response hook of requests. It cannot see when a request leaves: only its answer. So no request is late
here: the units of a call that took a minute would count from its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidemill.core.refusals import CLIENT_ERROR
from tidemill.hooks.bodies import Body
from tidemill.hooks.calls import Answer, WatchedCall, begin_call


class ResponseHook:
    def __init__(self, pool: Any) -> None:
        self.pool = pool

    def __call__(self, response: Any, **_options: Any) -> None:
        call = begin_call(self.pool)
        if call is None:
            return
        call.left(1 + _retries(response))
        if response.status_code >= CLIENT_ERROR:
            _ = response.content  # an error says its reason in its body
            call.answered(response)
            return
        _watch_body(response, call)


def _retries(response: Any) -> int:
    """What urllib3 tried again by itself, if the session's adapter told it to."""
    history = getattr(getattr(response.raw, "retries", None), "history", ())
    return len(history)


def _watch_body(response: Any, call: WatchedCall) -> None:
    """`content`, `text`, `json` and the iterators all read through `iter_content`."""
    status, headers = response.status_code, response.headers
    body = Body(headers.get("content-type", ""))
    call.answered(Answer(status, headers))
    iter_content, close = response.iter_content, response.close

    def tell() -> None:
        call.answered(Answer(status, headers, body.content()))

    def watched_content(chunk_size: int | None = 1, decode_unicode: bool = False) -> Iterator[Any]:
        for piece in iter_content(chunk_size, decode_unicode):
            body.feed(piece.encode() if isinstance(piece, str) else piece)
            yield piece
        tell()

    def watched_close() -> None:
        close()
        tell()

    vars(response).update(iter_content=watched_content, close=watched_close)
