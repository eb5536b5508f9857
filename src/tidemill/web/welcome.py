"""The way in for whoever started the server."""

from __future__ import annotations

from tidemill.app import Tidemill


async def link(app: Tidemill, address: str) -> str:
    """Good for one sign-in."""
    return f"{address}/"
