"""Pages for sign-in and sign-out."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from tidemill.http_routes.problems import HTTPError
from tidemill.http_routes.routes import PageResponse, Redirect, Role, Route
from tidemill.web.request import RouteRequest
from tidemill.web.request_security import CookieScope
from tidemill.web.sign_in import SignInService

APP_PLACEHOLDER = "module:app"
"""Shown in commands if the application was not loaded by its import name."""


class SignInQuery(msgspec.Struct, frozen=True):
    """The query parameters of the sign-in page. `next` is the path of the page to open after the sign-in."""

    next: str = "/"


class SignInForm(msgspec.Struct, frozen=True, kw_only=True):
    token: str
    next: str = "/"


async def sign_in_page(request: RouteRequest) -> PageResponse:
    return _sign_in_form(next_=_own_path(request.query.next))


async def sign_in_by_token(request: RouteRequest) -> PageResponse | Redirect:
    body: SignInForm = request.body
    cookie = await _sign_in_service(request).by_token(body.token, _cookie_scope(request), request.address)
    if cookie is None:
        return _sign_in_form(
            next_=_own_path(body.next), problem="sign_in.invalid_token", status=HTTPStatus.UNAUTHORIZED
        )
    return Redirect(_own_path(body.next), headers={"set-cookie": cookie})


async def sign_in_link_page(request: RouteRequest) -> PageResponse:
    return _sign_in_form(link=request.path["secret"])


async def sign_in_by_link(request: RouteRequest) -> PageResponse | Redirect:
    cookie = await _sign_in_service(request).by_link(
        request.path["secret"], _cookie_scope(request), request.address
    )
    if cookie is None:
        return _sign_in_form(
            problem="sign_in.invalid_link",
            app=request.app.application_spec or APP_PLACEHOLDER,
            status=HTTPStatus.GONE,
        )
    return Redirect("/", headers={"set-cookie": cookie})


async def sign_out(request: RouteRequest) -> Redirect:
    cookie = await _sign_in_service(request).sign_out(
        request.user, _cookie_scope(request), request.headers.get("cookie"), request.address
    )
    return Redirect("/sign-in", headers={"set-cookie": cookie})


def _sign_in_form(
    *,
    next_: str = "/",
    link: str | None = None,
    problem: str | None = None,
    app: str = APP_PLACEHOLDER,
    status: int = HTTPStatus.OK,
) -> PageResponse:
    """Returns the sign-in page.

    - `next_`: the path to open after the sign-in
    - `link`: the secret of a sign-in link
    - `problem`: the translation key of an error message"""
    context = {"next": next_, "link_secret": link, "problem": problem, "app": app}
    return PageResponse("sign_in.html", context, status=status)


def _own_path(path: str) -> str:
    r"""Returns the path if it belongs to this dashboard, else `/`. Browsers read `//elsewhere` and
    `/\elsewhere` as another host."""
    is_path = path.startswith("/") and path.isprintable() and "\\" not in path
    return path if is_path and not path.startswith("//") else "/"


def _cookie_scope(request: RouteRequest) -> CookieScope:
    return CookieScope(request.headers.get("host", ""), request.secure, request.prefix)


def _sign_in_service(request: RouteRequest) -> SignInService:
    if request.sign_in is None:
        raise HTTPError(HTTPStatus.NOT_FOUND, "people sign in where this dashboard is mounted")
    return request.sign_in


ROUTES = (
    Route(
        method="GET",
        path="/sign-in",
        role=Role.PUBLIC,
        handler=sign_in_page,
        summary="Sign in",
        query=SignInQuery,
    ),
    Route(
        method="POST",
        path="/sign-in",
        role=Role.PUBLIC,
        handler=sign_in_by_token,
        summary="Sign in with a token",
        body=SignInForm,
        audited=False,
    ),
    Route(
        method="GET",
        path="/sign-in/{secret}",
        role=Role.PUBLIC,
        handler=sign_in_link_page,
        summary="Sign in by a link",
    ),
    Route(
        method="POST",
        path="/sign-in/{secret}",
        role=Role.PUBLIC,
        handler=sign_in_by_link,
        summary="Use a link",
        audited=False,
    ),
    Route(
        method="POST", path="/sign-out", role=Role.VIEWER, handler=sign_out, summary="Sign out", audited=False
    ),
)
