"""Turns a handler's return value, an error or an event stream into an HTTP response."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from tidemill.http_routes.problems import (
    INTERNAL_ERROR,
    Problem,
    ProblemFormatter,
    problem_from_error,
    problem_headers,
)
from tidemill.http_routes.routes import PageResponse, Redirect, Route, StreamEvent, TextResponse
from tidemill.web.renderer import Renderer
from tidemill.web.request import RouteRequest
from tidemill.web.streams import ViewerStream

JSON_TYPE, PROBLEM_TYPE = "application/json", "application/problem+json"
NOTICE_COOKIE = "tidemill-notice"
_LINE_ENDS = re.compile(r"\r\n|\r|\n")
"""Line breaks of an event stream. Python splits at more characters, such as U+2028, which may occur inside
a line."""


def build_response(
    renderer: Renderer, request: Request, route: Route, route_request: RouteRequest, answer: Any
) -> Response:
    match answer:
        case None:
            return Response(status_code=204)
        case PageResponse():
            return _page_response(renderer, request, route_request, answer)
        case Redirect():
            return _redirect_response(request, answer)
        case TextResponse():
            headers = dict(answer.headers)
            return Response(answer.body, answer.status, media_type=answer.media_type, headers=headers)
        case _:
            return Response(msgspec.json.encode(answer), route.status, media_type=JSON_TYPE)


def problem_response(
    renderer: Renderer,
    request: Request,
    error: Exception,
    *,
    language: str,
    format_problem: ProblemFormatter | None = None,
) -> Response:
    problem = problem_from_error(error) or INTERNAL_ERROR
    headers = problem_headers(error)
    if format_problem is not None:
        return Response(
            msgspec.json.encode(format_problem(problem)),
            problem.status,
            media_type=JSON_TYPE,
            headers=headers,
        )
    if wants_page(request):
        response = _html_response(renderer.problem(request, problem, language=language), problem.status)
        response.headers.update(headers)
        return response
    return _problem_document(problem, headers)


def wants_page(request: Request) -> bool:
    return not request.url.path.startswith(f"{request.scope.get('root_path', '')}/api/") and (
        "text/html" in request.headers.get("accept", "")
    )


def _problem_document(problem: Problem, headers: dict[str, str]) -> Response:
    return Response(msgspec.json.encode(problem), problem.status, media_type=PROBLEM_TYPE, headers=headers)


def _html_response(body: str, status: int) -> Response:
    return Response(body, status, media_type="text/html; charset=utf-8")


def _page_response(
    renderer: Renderer, request: Request, route_request: RouteRequest, answer: PageResponse
) -> Response:
    """Renders the page and deletes its notice cookie, so that a notice appears once."""
    response = _html_response(renderer.page(request, route_request, answer), answer.status)
    if NOTICE_COOKIE in request.cookies:
        response.delete_cookie(NOTICE_COOKIE, samesite="strict", httponly=True)
    return response


def _redirect_response(request: Request, answer: Redirect) -> Response:
    """Returns a redirect to a path of the dashboard. A cookie carries the notice to the next page."""
    response = RedirectResponse(f"{request.scope.get('root_path', '')}{answer.path}", status_code=303)
    response.headers.update(answer.headers)
    if answer.notice:
        response.set_cookie(NOTICE_COOKIE, quote(answer.notice), max_age=30, samesite="strict", httponly=True)
    return response


def event_stream_response(stream: ViewerStream | None) -> Response:
    """Returns a response that sends the stream as server-sent events. `stream=None`: sends only the headers,
    for a HEAD request."""
    return StreamingResponse(
        _sse_lines(stream),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


async def _sse_lines(stream: ViewerStream | None) -> AsyncIterator[str]:
    if stream is None:
        return
    async with aclosing(aiter(stream)) as events:
        async for event in events:
            yield format_sse(event)


def format_sse(event: StreamEvent) -> str:
    """Returns the text of a server-sent event, with one `data:` line per line of its data. An event without a
    name becomes a comment, which keeps the connection open."""
    if not event.name:
        return ": still here\n\n"
    lines = [f"event: {event.name}", *([f"id: {event.id}"] if event.id else [])]
    lines += [f"data: {line}" for line in _LINE_ENDS.split(event.data)]
    return "\n".join(lines) + "\n\n"
