"""Signing in, by a token or by a link, and out again.

A link is used by the form it shows, not by being opened: programs that look at links before people do must
not use them up.
"""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from tidemill.seam.answers import Go, Page
from tidemill.seam.refusals import Refused
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.asked import Asked
from tidemill.web.cookies import Place
from tidemill.web.signing import Signing

UNKNOWN = "module:app"
"""What stands for the application where a program serves it that nobody loaded by name."""


class Next(msgspec.Struct, frozen=True):
    """`next` is where somebody wanted to go."""

    next: str = "/"


class Token(msgspec.Struct, frozen=True, kw_only=True):
    token: str
    next: str = "/"


async def sign_in(asked: Asked) -> Page:
    return _form(next_=_own(asked.query.next))


async def by_token(asked: Asked) -> Page | Go:
    body: Token = asked.body
    cookie = await _signing(asked).by_token(body.token, _place(asked), asked.address)
    if cookie is None:
        return _form(next_=_own(body.next), problem="sign_in.wrong", status=HTTPStatus.UNAUTHORIZED)
    return Go(_own(body.next), headers={"set-cookie": cookie})


async def link(asked: Asked) -> Page:
    return _form(link=asked.path["secret"])


async def by_link(asked: Asked) -> Page | Go:
    cookie = await _signing(asked).by_link(asked.path["secret"], _place(asked), asked.address)
    if cookie is None:
        return _form(problem="sign_in.used", app=asked.app.loaded_as or UNKNOWN, status=HTTPStatus.GONE)
    return Go("/", headers={"set-cookie": cookie})


async def sign_out(asked: Asked) -> Go:
    cookie = await _signing(asked).out(asked.who, _place(asked), asked.headers.get("cookie"), asked.address)
    return Go("/sign-in", headers={"set-cookie": cookie})


def _form(
    *,
    next_: str = "/",
    link: str | None = None,
    problem: str | None = None,
    app: str = UNKNOWN,
    status: int = HTTPStatus.OK,
) -> Page:
    """`problem` is a word of the catalogue, `app` what a command names the application by."""
    shows = {"next": next_, "link_secret": link, "problem": problem, "app": app}
    return Page("sign_in.html", shows, status=status)


def _own(path: str) -> str:
    """Only a page of ours: `//elsewhere` is a host to a browser, and so is `/\\elsewhere`."""
    is_path = path.startswith("/") and path.isprintable() and "\\" not in path
    return path if is_path and not path.startswith("//") else "/"


def _place(asked: Asked) -> Place:
    return Place(asked.headers.get("host", ""), asked.secure, asked.prefix)


def _signing(asked: Asked) -> Signing:
    if asked.signing is None:
        raise Refused(HTTPStatus.NOT_FOUND, "people sign in where this dashboard is mounted")
    return asked.signing


ROUTES = (
    Route(method="GET", path="/sign-in", role=Role.ANYBODY, handler=sign_in, says="Sign in", query=Next),
    Route(
        method="POST",
        path="/sign-in",
        role=Role.ANYBODY,
        handler=by_token,
        says="Sign in with a token",
        takes=Token,
        audited=False,
    ),
    Route(method="GET", path="/sign-in/{secret}", role=Role.ANYBODY, handler=link, says="Sign in by a link"),
    Route(
        method="POST",
        path="/sign-in/{secret}",
        role=Role.ANYBODY,
        handler=by_link,
        says="Use a link",
        audited=False,
    ),
    Route(
        method="POST", path="/sign-out", role=Role.VIEWER, handler=sign_out, says="Sign out", audited=False
    ),
)
