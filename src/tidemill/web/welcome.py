"""The way in for whoever started the server."""

from __future__ import annotations

from tidemill.app import Tidemill
from tidemill.seam.roles import Role


async def link(app: Tidemill, address: str, name: str, role: Role = Role.ADMIN) -> str:
    """Good for one sign-in, for a quarter of an hour."""
    return f"{address.rstrip('/')}/sign-in/{await app.access.links.create(name, role)}"
