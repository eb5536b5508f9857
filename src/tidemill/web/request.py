"""The RouteRequest that a handler receives, and the parser of duration fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from tidemill.app import Tidemill
from tidemill.http_routes.problems import HTTPError
from tidemill.http_routes.routes import ANONYMOUS, Redirect, User
from tidemill.times import parse_duration
from tidemill.web.i18n import translator
from tidemill.web.live_views import LiveViews
from tidemill.web.redacted_inspector import RedactedInspector
from tidemill.web.sign_in import SignInService
from tidemill.web.template_functions import build_path


@dataclass(frozen=True, kw_only=True)
class RouteRequest:
    """A parsed and authenticated request, which a handler receives.

    - `path`: the path parameters by name
    - `query`, `body`: values of the types that the route declares, None without a type
    - `inspect`: the inspector that hides secrets
    - `language`: the language code of the response, such as "en"
    - `headers`: the request headers by lower-case name
    - `address`: the client's IP address
    - `prefix`: the path at which the dashboard is mounted
    - `secure`: True if the browser uses https
    - `sign_in`: signs users in and out; None if the application's own hook authenticates users"""

    app: Tidemill
    inspect: RedactedInspector
    live_views: LiveViews
    user: User = ANONYMOUS
    path: Mapping[str, str] = field(default_factory=dict)
    query: Any = None
    body: Any = None
    language: str = "en"
    headers: Mapping[str, str] = field(default_factory=dict)
    address: str | None = None
    prefix: str = ""
    secure: bool = False
    sign_in: SignInService | None = None

    async def store_now(self) -> float:
        """Returns the store's wall time, which all stored times use."""
        return (await (await self.app.client.store()).read_clock()).wall

    async def end_time(self, duration: str | None, *, field: str = "duration") -> float | None:
        """Returns the time that is `duration` from now on the store's clock. `duration` is a text such as
        `2h`; if it is empty, returns None, which means no end."""
        seconds = parse_duration_field(duration, field=field)
        return None if seconds is None else await self.store_now() + seconds

    def redirect(self, path: str, *parts: str, notice: str, query: str = "", **values: Any) -> Redirect:
        """Returns a redirect with a notice: `request.redirect("/pools/{}", name,
        notice="pool.notice_opened")`.

        - `parts`: each replaces one {} in `path`
        - `notice`: a translation key; `values` are inserted into its text
        - `query`: added to the path, such as `?key=a`"""
        return Redirect(f"{build_path(path, *parts)}{query}", translator(self.language)(notice, **values))


def parse_duration_field(text: str | None, *, field: str) -> float | None:
    """Returns the seconds of a duration such as `2h`, None if the text is empty. Raises HTTPError, which
    names `field`, if the text is no duration."""
    if not (text := (text or "").strip()):
        return None
    if (seconds := parse_duration(text)) is None:
        raise HTTPError(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            f"{field}: must be a duration, such as 90s, 10m, 1h30m or 2d, is {text[:50]!r}",
            field=field,
        )
    return seconds
