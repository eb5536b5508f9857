"""From which page a request came.

A browser says so itself, and no page can make it say otherwise: `Origin` with every write and with every
script that reads, `Sec-Fetch-Site` with everything. A program says neither.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.requests import Request

from tidemill.web.hosts import Hosts, netloc_of, same_port

_OWN_SITES = ("same-origin", "none")


def is_foreign(request: Request, hosts: Hosts, *, writes: bool) -> bool:
    """`none` is an address that was typed, or a bookmark. A link on a page elsewhere may lead here, but a
    picture, a script or a frame there may not be ours."""
    origins = request.headers.getlist("origin")
    if origins and not (len(origins) == 1 and _is_own(request, hosts, origins[0])):
        return True
    site = request.headers.get("sec-fetch-site")
    if site is None or site in _OWN_SITES:
        return False
    return writes or not is_from_link(request)


def is_from_link(request: Request) -> bool:
    """Somebody followed a link on a page elsewhere: the cookie, which is for our own pages only, stayed
    behind."""
    headers = request.headers
    return (
        headers.get("sec-fetch-site") in ("cross-site", "same-site")
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )


def _is_own(request: Request, hosts: Hosts, origin: str) -> bool:
    """The page was served where it asks. Its scheme may be https though ours is http, when somebody before us
    ends TLS; never the other way round."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    came_from, asked_by = netloc_of(parts.netloc), hosts.asked_by(request.scope)
    if came_from is None or asked_by is None or parts.scheme not in ("http", "https"):
        return False
    if request.url.scheme == "https" and parts.scheme == "http":
        return False
    here = came_from.host == asked_by.host and same_port(came_from, asked_by, ("http", "https"))
    return here or hosts.names(came_from)
