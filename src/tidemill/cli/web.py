"""`tidemill web`: the dashboard and the HTTP API by themselves."""

from __future__ import annotations

import asyncio
import signal

import click

from tidemill.app import Tidemill
from tidemill.app.working import Beside, best_loop
from tidemill.cli.application import load, required
from tidemill.cli.installed import offered
from tidemill.cli.milestones import milestone
from tidemill.cli.minding import mind_ignored
from tidemill.cli.output import echo
from tidemill.cli.running import log_to_stderr, logs
from tidemill.cli.serving import beside, listening, serves


@click.command()
@click.argument("app", metavar="[MODULE:APP]", required=False, shell_complete=offered)
@serves
@logs("auto")
def web(
    app: str | None,
    *,
    host: str | None,
    port: int | None,
    log_format: str | None,
    log_level: str | None,
    as_json: bool,
) -> None:
    """Serve the dashboard and the HTTP API by themselves.

    For workers that run elsewhere: `tidemill up` serves both beside its worker. Any number may run. Behind
    another server set web.hosts to the names it is asked by. Without an argument it is the application that
    is set (TIDEMILL_APP, or app in tidemill.toml)."""
    spec = required(app)
    application = load(spec)
    log_to_stderr(application, log_format or ("json" if as_json else None), log_level)
    mind_ignored(application)

    def greet(link: str) -> None:
        if as_json:
            milestone("started", application=spec, link=link, store=str(application.url))
        else:
            echo(f"sign in once with {link}", err=True)

    with listening(application, host, port) as (found, address):
        best_loop()(_serve(application, beside(application, found, greet, address)))
    if as_json:
        milestone("stopped")


async def _serve(app: Tidemill, served: Beside) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with app, served:
        await stop.wait()
