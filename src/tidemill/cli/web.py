"""`tidemill web`: serves the dashboard and the HTTP API, and finds a running dashboard."""

from __future__ import annotations

import asyncio
import functools
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from socket import gethostname
from typing import Any
from urllib.parse import urlsplit

import click

from tidemill.app import Tidemill
from tidemill.app.worker_api import SideContext, choose_loop_runner
from tidemill.cli.application_loader import complete_applications, load_application, require_spec
from tidemill.cli.options import WholeNumber, with_log_options
from tidemill.cli.output import echo
from tidemill.cli.startup import configure_logging, print_status, warn_ignored_settings
from tidemill.cli.store_options import CommandTarget

_LISTEN_OPTIONS = (
    click.option(
        "--host", help="The address to listen on. Default: 127.0.0.1, reachable only from this machine."
    ),
    click.option(
        "--port",
        type=WholeNumber(0, 65535),
        help="The port to listen on; 0 for any. Default: 8750, or the next free one.",
    ),
)


def with_listen_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator that adds --host and --port to a command; `web` and `up` use it."""
    return functools.reduce(lambda made, option: option(made), reversed(_LISTEN_OPTIONS), command)


@contextmanager
def open_listener(app: Tidemill, host: str | None, port: int | None) -> Iterator[tuple[socket.socket, str]]:
    """Opens a listening socket at `host` and `port`, or at those of the settings. Yields the socket, and the
    URL that a browser on this machine opens."""
    from tidemill.web.server import browser_url, listen

    host = host or app.settings.value("web.host")
    port_is_fixed = port is not None or app.settings.origin("web.port") != "default"
    listener = listen(
        host, app.settings.value("web.port") if port is None else port, port_is_fixed=port_is_fixed
    )
    with listener:
        yield listener, browser_url(listener, host)


@asynccontextmanager
async def serve_dashboard(
    app: Tidemill, listener: socket.socket, on_link: Callable[[str], None], address: str
) -> AsyncIterator[None]:
    """Async context manager that serves the dashboard. Calls `on_link` with a sign-in link once the dashboard
    is served. `address`: the dashboard's URL, which is stored for `tidemill link`."""
    from tidemill.auth.running_dashboards import DashboardAddress
    from tidemill.cli.overrides import current_operator
    from tidemill.web.server import serve_dashboard
    from tidemill.web.sign_in import create_sign_in_link

    announce = app.auth.dashboards.announce(DashboardAddress(address=address, host=socket.gethostname()))
    async with serve_dashboard(app, listener), announce:
        url = app.settings.value("web.public_url") or address
        on_link(await create_sign_in_link(app, url, current_operator()))
        yield


CONNECT_TIMEOUT_SECONDS = 1.0
"""Timeout for connecting to a port of this machine."""


@dataclass(frozen=True)
class DashboardLocation:
    """The address of a dashboard. `host` is the machine that serves the dashboard; None for this machine.

    - `served=True`: the dashboard is running; it has stored its address
    - `served=False`: no running dashboard was found, and `address` comes from the settings
    - `served=None`: the user or `web.public_url` gave the address; the dashboard may or may not be running"""

    address: str
    served: bool | None
    host: str | None = None

    def describe(self, target: CommandTarget) -> str:
        if self.served is None:
            return "the dashboard has to be running (tidemill up, or tidemill web)"
        if not self.served:
            return (
                f"it is not served now: start {target.start_command('web')}; if it is mounted elsewhere, "
                "give its address with --at"
            )
        if self.host is not None:
            return f"it is served on {self.host}; to open it from elsewhere name its address with --at"
        return "it is served there now"


async def find_dashboard(app: Tidemill, given_address: str | None) -> DashboardLocation:
    if address := given_address or app.settings.value("web.public_url"):
        return DashboardLocation(address, served=None)
    host = gethostname()
    dashboards = await app.auth.dashboards.list()
    for served in dashboards:
        if served.host == host and await _accepts_connections(served.address):
            return DashboardLocation(served.address, served=True)
    for served in dashboards:
        if served.host != host:
            return DashboardLocation(served.address, served=True, host=served.host)
    return DashboardLocation(_configured_address(app), served=False)


async def _accepts_connections(address: str) -> bool:
    """True if a server accepts a connection at `address`."""
    url = urlsplit(address)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
            _, writer = await asyncio.open_connection(url.hostname, url.port)
    except OSError:  # TimeoutError is an OSError
        return False
    writer.close()
    return True


def _configured_address(app: Tidemill) -> str:
    """Returns the configured address as a browser on this machine would open it."""
    host, port = app.settings.value("web.host"), app.settings.value("web.port")
    if host in ("0.0.0.0", "::", ""):  # noqa: S104 - compared, not bound
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@click.command()
@click.argument("app", metavar="[MODULE:APP]", required=False, shell_complete=complete_applications)
@with_listen_options
@with_log_options("auto")
def web(
    app: str | None,
    *,
    host: str | None,
    port: int | None,
    log_format: str | None,
    log_level: str | None,
    as_json: bool,
) -> None:
    """Serve only the dashboard and the HTTP API.

    Use it when workers run elsewhere; `tidemill up` serves both beside its worker. You can run several such
    processes. Behind another server, set web.hosts to its public host names. Without an argument it uses the
    configured application (TIDEMILL_APP, or app in tidemill.toml)."""
    spec = require_spec(app)
    application = load_application(spec)
    configure_logging(application, log_format or ("json" if as_json else None), log_level)
    warn_ignored_settings(application)

    def print_link(link: str) -> None:
        if as_json:
            print_status("started", application=spec, link=link, store=str(application.url))
        else:
            echo(f"sign in once with {link}", err=True)

    with open_listener(application, host, port) as (listener, address):
        choose_loop_runner()(
            _serve_until_signal(application, serve_dashboard(application, listener, print_link, address))
        )
    if as_json:
        print_status("stopped")


async def _serve_until_signal(app: Tidemill, served: SideContext) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with app, served:
        await stop.wait()
