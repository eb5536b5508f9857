"""A response hook for the library requests. It reports only answers, because requests has no hook for the
moment of sending."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidemill.core.feedback import MIN_REFUSAL_STATUS
from tidemill.hooks.watched_call import BodyUsageReader, WatchedCall, WatchedResponse, begin_call


class RequestsHook:
    def __init__(self, pool: Any) -> None:
        self.pool = pool

    def __call__(self, response: Any, **_options: Any) -> None:
        call = begin_call(self.pool)
        if call is None:
            return
        call.left(1 + _count_retries(response))
        if response.status_code >= MIN_REFUSAL_STATUS:
            _ = response.content  # the body contains the reason
            call.answered(response)
            return
        _watch_requests_body(response, call)


def _count_retries(response: Any) -> int:
    """Returns how many retries urllib3 made for this response; 0 if the session's adapter allows none."""
    history = getattr(getattr(response.raw, "retries", None), "history", ())
    return len(history)


def _watch_requests_body(response: Any, call: WatchedCall) -> None:
    """Replaces `iter_content` and `close` of this response, so that usage is read while the program reads the
    body."""
    status, headers = response.status_code, response.headers
    body = BodyUsageReader(headers.get("content-type", ""))
    call.answered(WatchedResponse(status, headers))
    iter_content, close = response.iter_content, response.close

    def tell() -> None:
        call.answered(WatchedResponse(status, headers, body.finish()))

    def watched_content(chunk_size: int | None = 1, decode_unicode: bool = False) -> Iterator[Any]:
        for piece in iter_content(chunk_size, decode_unicode):
            body.feed(piece.encode() if isinstance(piece, str) else piece)
            yield piece
        tell()

    def watched_close() -> None:
        close()
        tell()

    # `content`, `text`, `json` and the iterators call `iter_content`.
    vars(response).update(iter_content=watched_content, close=watched_close)
