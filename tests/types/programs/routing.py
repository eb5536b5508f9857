"""Routes of an application's own: none can be written without saying who may call it."""

from typing import Any

from tidemill import Tidemill
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route

app = Tidemill("memory://")


async def songs(asked: Any) -> list[str]:
    return []


Route(method="GET", path="/api/songs", role=Role.VIEWER, handler=songs, says="All songs.")
Route(method="GET", path="/api/songs", handler=songs, says="All songs.")  # expect: call-arg, reportCallIssue
Route(method="GET", path="/", role="admin", handler=songs, says="")  # expect: arg-type, reportArgumentType
Route(method="ASK", path="/", role=Role.ADMIN, handler=songs, says="")  # expect: arg-type, reportArgumentType

app.web.route("GET", "/api/songs", role=Role.VIEWER, says="All songs.")(songs)
app.web.route("GET", "/api/songs", says="All songs.")(songs)  # expect: call-arg, reportCallIssue
