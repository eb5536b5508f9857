"""What a handler answered, as a response."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from tidemill.seam.answers import Event, Go, Page, Text
from tidemill.seam.refusals import Problem, Refused, Told
from tidemill.seam.routes import Route
from tidemill.web.asked import Asked
from tidemill.web.problems import OURS, problem_of
from tidemill.web.rendering import Renderer
from tidemill.web.streams import Stream

JSON, PROBLEM = "application/json", "application/problem+json"
NOTICE = "tidemill-notice"
_ENDS = re.compile(r"\r\n|\r|\n")
"""Of lines in a stream. Python knows more, U+2028 among them, which texts may have in their middle."""


def respond(renderer: Renderer, request: Request, route: Route, asked: Asked, answer: Any) -> Response:
    match answer:
        case None:
            return Response(status_code=204)
        case Page():
            return _page(renderer, request, asked, answer)
        case Go():
            return _go(request, answer)
        case Text():
            return Response(
                answer.body, answer.status, media_type=answer.media_type, headers=dict(answer.headers)
            )
        case _:
            return Response(msgspec.json.encode(answer), route.status, media_type=JSON)


def refuse(
    renderer: Renderer, request: Request, error: Exception, *, language: str, told: Told | None = None
) -> Response:
    problem = problem_of(error) or OURS
    headers = error.headers if isinstance(error, Refused) else {}
    if told is not None:
        return Response(msgspec.json.encode(told(problem)), problem.status, media_type=JSON, headers=headers)
    if wants_page(request):
        response = _html(renderer.problem(request, problem, language=language), problem.status)
        response.headers.update(headers)
        return response
    return _document(problem, headers)


def wants_page(request: Request) -> bool:
    return not request.url.path.startswith(f"{request.scope.get('root_path', '')}/api/") and (
        "text/html" in request.headers.get("accept", "")
    )


def _document(problem: Problem, headers: dict[str, str]) -> Response:
    return Response(msgspec.json.encode(problem), problem.status, media_type=PROBLEM, headers=headers)


def _html(body: str, status: int) -> Response:
    return Response(body, status, media_type="text/html; charset=utf-8")


def _page(renderer: Renderer, request: Request, asked: Asked, answer: Page) -> Response:
    """A notice is shown once."""
    response = _html(renderer.page(request, asked, answer), answer.status)
    if NOTICE in request.cookies:
        response.delete_cookie(NOTICE, samesite="strict", httponly=True)
    return response


def _go(request: Request, answer: Go) -> Response:
    """303: whatever was sent, the next is a GET. A path of our own only."""
    response = RedirectResponse(f"{request.scope.get('root_path', '')}{answer.path}", status_code=303)
    response.headers.update(answer.headers)
    if answer.notice:
        response.set_cookie(NOTICE, quote(answer.notice), max_age=30, samesite="strict", httponly=True)
    return response


def streamed(stream: Stream | None) -> Response:
    """None: what would be sent with a stream, which is what HEAD asks for."""
    return StreamingResponse(
        _lines(stream),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


async def _lines(stream: Stream | None) -> AsyncIterator[str]:
    if stream is None:
        return
    async with aclosing(aiter(stream)) as events:
        async for event in events:
            yield written(event)


def written(event: Event) -> str:
    """As the browser reads it: a line of data for each line there is. One without a name is for nobody, and
    only shows that the stream goes on."""
    if not event.name:
        return ": still here\n\n"
    lines = [f"event: {event.name}", *([f"id: {event.id}"] if event.id else [])]
    lines += [f"data: {line}" for line in _ENDS.split(event.data)]
    return "\n".join(lines) + "\n\n"
