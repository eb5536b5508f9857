"""Problem documents (RFC 9457), the HTTPError that handlers raise, and the status of each Tidemill error."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from tidemill import errors


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A problem document (RFC 9457).

    - `detail`: one sentence with the error, and how to fix it
    - `field`: the part of the request that is wrong, None if no single part is"""

    title: str
    status: int
    detail: str
    type: str = "about:blank"
    field: str | None = None


ProblemFormatter = Callable[[Problem], Any]
"""Turns a problem into the JSON value that a route sends as its error response."""


class HTTPError(Exception):
    """An error response that a handler raises: `HTTPError(404, "there is no song 7")`.

    - `headers`: added to the response, such as `retry-after`
    - `field`: the part of the request that is wrong"""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        field: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.field = HTTPStatus(status), detail, field
        self.headers = dict(headers or {})


_STATUS_BY_ERROR: tuple[tuple[type[Exception], HTTPStatus], ...] = (
    (errors.JobNotFound, HTTPStatus.NOT_FOUND),
    (errors.QueueNotFound, HTTPStatus.NOT_FOUND),
    (errors.PoolNotFound, HTTPStatus.NOT_FOUND),
    (errors.ScheduleNotFound, HTTPStatus.NOT_FOUND),
    (errors.FlowNotFound, HTTPStatus.NOT_FOUND),
    (errors.TokenNotFound, HTTPStatus.NOT_FOUND),
    (errors.WebhookNotFound, HTTPStatus.NOT_FOUND),
    (errors.PayloadTooLarge, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (errors.QueueFull, HTTPStatus.TOO_MANY_REQUESTS),
    (errors.EnqueueError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (errors.ConfigurationError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (errors.StoreFull, HTTPStatus.INSUFFICIENT_STORAGE),
    (errors.StoreError, HTTPStatus.SERVICE_UNAVAILABLE),
    (errors.AnswerUnavailable, HTTPStatus.SERVICE_UNAVAILABLE),
    (errors.TidemillError, HTTPStatus.CONFLICT),
)
_REASON_PHRASES = {
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "Content Too Large",
    HTTPStatus.REQUEST_URI_TOO_LONG: "URI Too Long",
    HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE: "Range Not Satisfiable",
    HTTPStatus.UNPROCESSABLE_ENTITY: "Unprocessable Content",
}
_FIELD_PATTERN = re.compile(r"(?:^|: )([a-z_][\w.\[\]-]*): ")


def reason_phrase(status: HTTPStatus) -> str:
    """Returns the reason phrase of a status, as RFC 9110 defines it. For some statuses, Python before 3.13
    has older phrases, which this function replaces."""
    return _REASON_PHRASES.get(status, status.phrase)


def problem_from_error(error: Exception) -> Problem | None:
    """Returns the problem document for an HTTPError or a Tidemill error. Returns None for any other error,
    whose details stay in the log."""
    if isinstance(error, HTTPError):
        return _problem(error.status, error.detail, error.field)
    if isinstance(error, errors.DependencyUnavailable):
        return _problem(HTTPStatus.SERVICE_UNAVAILABLE, str(error), None)
    for kind, status in _STATUS_BY_ERROR:
        if isinstance(error, kind):
            field = None if isinstance(error, errors.AnswerUnavailable) else _field_in_message(str(error))
            return _problem(status, str(error), field)
    return None


def problem_headers(error: Exception) -> dict[str, str]:
    """Returns the headers of the error response: those of an HTTPError, or `Retry-After` if the error says
    when to try again."""
    if isinstance(error, HTTPError):
        return error.headers
    if isinstance(error, errors.DependencyUnavailable):
        return retry_after_header(error.delay)
    if isinstance(error, errors.AnswerUnavailable) and error.retry_after is not None:
        return retry_after_header(error.retry_after)
    return {}


def retry_after_header(seconds: float) -> dict[str, str]:
    """Returns the header `Retry-After` in whole seconds, 1 or more."""
    return {"retry-after": f"{math.ceil(max(1.0, seconds))}"}


INTERNAL_ERROR = Problem(
    title=HTTPStatus.INTERNAL_SERVER_ERROR.phrase,
    status=HTTPStatus.INTERNAL_SERVER_ERROR,
    detail="internal error; the log of the server has the details",
)


def _problem(status: HTTPStatus, detail: str, field: str | None) -> Problem:
    return Problem(title=reason_phrase(status), status=status, detail=detail, field=field)


def _field_in_message(sentence: str) -> str | None:
    """Returns the field that an error message names before a colon: `queue` for `queue: must be a name`.
    Returns None if the message names no field."""
    found = _FIELD_PATTERN.search(sentence)
    return found[1] if found else None
