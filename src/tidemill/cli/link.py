"""`tidemill link`: a way into the dashboard, good for one sign-in."""

from __future__ import annotations

import re

import click

from tidemill.app import Tidemill
from tidemill.cli.output import note, print_json
from tidemill.cli.queues.words import who
from tidemill.cli.target import Target, with_target
from tidemill.cli.token.create import ROLES
from tidemill.seam.roles import Role, Who


def _address(_ctx: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    if value is not None and not re.match(r"https?://[^\s/?#]", value):
        raise click.BadParameter(f"must begin with https:// or http:// and name a host, is {value!r}")
    return value


@click.command()
@click.option("--name", help="The user it is for. Default: whoever asks for it.")
@click.option(
    "--role",
    type=click.Choice(ROLES),
    default=Role.ADMIN.value,
    show_default=True,
    help="What they may do with it.",
)
@click.option(
    "--at",
    metavar="ADDRESS",
    callback=_address,
    help="Where the dashboard is. Default: web.public_url, or as it listens.",
)
@with_target
def link(target: Target, *, name: str | None, role: str, at: str | None) -> None:
    """Print a link that signs in to the dashboard once, within a quarter of an hour.

    `tidemill up` and `tidemill web` print one when they start. Whoever can read the store may make one."""
    found = target.run(lambda app: _link(app, name or who(), Role(role), at))
    if target.json:
        print_json({"link": found})
        return
    click.echo(found)
    note(
        "good once, for a quarter of an hour; the dashboard has to be running (tidemill up, or tidemill web)"
    )


async def _link(app: Tidemill, name: str, role: Role, at: str | None) -> str:
    from tidemill.web.welcome import link as make  # with the whole of the web

    host, port = app.settings.value("web.host"), app.settings.value("web.port")
    address = at or app.settings.value("web.public_url") or f"http://{_shown(host)}:{port}"
    await app.access.audit.write(Who(who(), Role.ADMIN), "tidemill link", {"name": name, "role": role.value})
    return await make(app, address, name, role)


def _shown(host: str) -> str:
    """As a browser on this machine asks for it."""
    if host in ("0.0.0.0", "::", ""):  # noqa: S104 - compared, not bound
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
