"""At which address the dashboard of a store is."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from socket import gethostname
from urllib.parse import urlsplit

from tidemill.app import Tidemill
from tidemill.cli.target import Target

PATIENCE = 1.0
"""Seconds in which a port of this machine answers, if anybody listens."""


@dataclass(frozen=True)
class Where:
    """`served` is None when somebody said the address: what is mounted elsewhere leaves no word of itself.
    `host` is the one that serves it when that is another than this."""

    address: str
    served: bool | None
    host: str | None = None

    def says(self, target: Target) -> str:
        if self.served is None:
            return "the dashboard has to be running (tidemill up, or tidemill web)"
        if not self.served:
            return (
                f"nobody serves it now: {target.start_command('web')} does; where it is mounted elsewhere, "
                "name the address with --at"
            )
        if self.host is not None:
            return f"it is served on {self.host}; to open it from elsewhere name its address with --at"
        return "it is served there now"


async def find(app: Tidemill, said: str | None) -> Where:
    if address := said or app.settings.value("web.public_url"):
        return Where(address, served=None)
    here = gethostname()
    serving = await app.access.serving.now()
    for served in serving:
        if served.host == here and await _answers(served.address):
            return Where(served.address, served=True)
    for served in serving:
        if served.host != here:
            return Where(served.address, served=True, host=served.host)
    return Where(_as_set(app), served=False)


async def _answers(address: str) -> bool:
    """One that was killed has left its word behind."""
    place = urlsplit(address)
    try:
        async with asyncio.timeout(PATIENCE):
            _, writer = await asyncio.open_connection(place.hostname, place.port)
    except OSError:  # a TimeoutError is one
        return False
    writer.close()
    return True


def _as_set(app: Tidemill) -> str:
    """As a browser on this machine asks for it."""
    host, port = app.settings.value("web.host"), app.settings.value("web.port")
    if host in ("0.0.0.0", "::", ""):  # noqa: S104 - compared, not bound
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
