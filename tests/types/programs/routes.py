"""Routes of an application: a route without a role is an error."""

from typing import Any

from tidemill import Tidemill
from tidemill.http_routes.routes import Role, Route

app = Tidemill("memory://")


async def get(request: Any) -> list[str]:
    return []


Route(method="GET", path="/songs", role=Role.VIEWER, handler=get, summary="All songs.")
Route(method="GET", path="/", handler=get, summary="All songs.")  # expect: call-arg, reportCallIssue
Route(method="GET", path="/", role="admin", handler=get, summary="")  # expect: arg-type, reportArgumentType
# fmt: off
Route(method="ASK", path="", role=Role.ADMIN, handler=get, summary="")  # expect: arg-type, reportArgumentType
# fmt: on

app.web.route("GET", "/api/songs", role=Role.VIEWER, summary="All songs.")(get)
app.web.route("GET", "/api/songs", summary="All songs.")(get)  # expect: call-arg, reportCallIssue
