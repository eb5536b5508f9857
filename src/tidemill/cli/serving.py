"""The options of whatever serves the dashboard, and how it comes to be served."""

from __future__ import annotations

import functools
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import click

from tidemill.app import Tidemill
from tidemill.cli.numbers import Whole

_OPTIONS = (
    click.option("--host", help="The address to listen on. Default: 127.0.0.1, only this machine."),
    click.option(
        "--port",
        type=Whole(0, 65535),
        help="The port to listen on; 0 for any. Default: 8750, or the next that is free.",
    ),
)


def serves(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that `web` and `up` share."""
    return functools.reduce(lambda made, option: option(made), reversed(_OPTIONS), command)


@contextmanager
def listening(app: Tidemill, host: str | None, port: int | None) -> Iterator[tuple[socket.socket, str]]:
    """Options, then settings. The second is the address as a browser on this machine asks for it."""
    from tidemill.web.server import address_of, listen

    where = host or app.settings.value("web.host")
    chosen = port is not None or app.settings.origin("web.port") != "default"
    found = listen(where, app.settings.value("web.port") if port is None else port, chosen=chosen)
    with found:
        yield found, address_of(found, where)


@asynccontextmanager
async def beside(
    app: Tidemill, found: socket.socket, said: Callable[[str], None], address: str
) -> AsyncIterator[None]:
    """Served while the block runs. `said` is told the link by which whoever started it signs in, once."""
    from tidemill.access.serving import Served
    from tidemill.cli.queues.words import who
    from tidemill.web.server import served
    from tidemill.web.welcome import link

    told = app.access.serving.told(Served(address=address, host=socket.gethostname()))
    async with served(app, found), told:
        said(await link(app, app.settings.value("web.public_url") or address, who()))
        yield
