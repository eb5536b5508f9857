"""The HTTP API and the dashboard.

`serving` turns one table of routes into an ASGI application: Tidemill's API (`api`), its pages (`pages`) and
whatever an application added (`app.web`). Each request passes the gate, is read into the types its route
names, handled, and answered; whatever goes wrong is a problem document. Pages that are looked at are kept
up to date by `live`.
"""

from __future__ import annotations

from tidemill.seam.answers import Event, Events, Go, Page, Text
from tidemill.seam.refusals import Problem, Refused
from tidemill.seam.roles import Role, Who
from tidemill.web.asked import Asked
from tidemill.web.serving import dashboard

__all__ = [
    "Asked",
    "Event",
    "Events",
    "Go",
    "Page",
    "Problem",
    "Refused",
    "Role",
    "Text",
    "Who",
    "dashboard",
]
