"""What went wrong, as a problem document (RFC 9457)."""

from __future__ import annotations

import re
from http import HTTPStatus

from tidemill import errors
from tidemill.seam.refusals import Problem, Refused

_STATUS: tuple[tuple[type[Exception], HTTPStatus], ...] = (
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
    (errors.TidemillError, HTTPStatus.CONFLICT),
)
_PHRASES = {
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "Content Too Large",
    HTTPStatus.REQUEST_URI_TOO_LONG: "URI Too Long",
    HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE: "Range Not Satisfiable",
    HTTPStatus.UNPROCESSABLE_ENTITY: "Unprocessable Content",
}
_FIELD = re.compile(r"(?:^|: )([a-z_][\w.\[\]-]*): ")


def phrase(status: HTTPStatus) -> str:
    """The reason phrase of RFC 9110. Before Python 3.13 the standard library had older ones."""
    return _PHRASES.get(status, status.phrase)


def problem_of(error: Exception) -> Problem | None:
    """None when it is not for whoever asked to know: a defect of ours."""
    if isinstance(error, Refused):
        return _problem(error.status, error.detail, error.field)
    for kind, status in _STATUS:
        if isinstance(error, kind):
            return _problem(status, str(error), _field_of(str(error)))
    return None


OURS = Problem(
    title=HTTPStatus.INTERNAL_SERVER_ERROR.phrase,
    status=HTTPStatus.INTERNAL_SERVER_ERROR,
    detail="the server made a mistake, which its log has; ask whoever runs it",
)


def _problem(status: HTTPStatus, detail: str, field: str | None) -> Problem:
    return Problem(title=phrase(status), status=status, detail=detail, field=field)


def _field_of(sentence: str) -> str | None:
    """Our sentences name the field before a colon."""
    found = _FIELD.search(sentence)
    return found[1] if found else None
