"""`tidemill link`: a way into the dashboard, good for one sign-in."""

from __future__ import annotations

import re

import click

from tidemill.app import Tidemill
from tidemill.cli.output import echo, note, print_json
from tidemill.cli.queues.words import who
from tidemill.cli.target import Target, with_target
from tidemill.cli.token.create import ROLES
from tidemill.cli.where import Where, find
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
    help="Where the dashboard is. Default: web.public_url, or where it is served now.",
)
@with_target
def link(target: Target, *, name: str | None, role: str, at: str | None) -> None:
    """Print a link that signs in to the dashboard once, within a quarter of an hour.

    `tidemill up` and `tidemill web` print one when they start. Whoever can read the store may make one."""
    found, where = target.run(lambda app: _link(app, name or who(), Role(role), at))
    if target.json:
        print_json({"link": found, "served": where.served})
        return
    echo(found)
    note(f"good once, for a quarter of an hour; {where.says(target)}")


async def _link(app: Tidemill, name: str, role: Role, at: str | None) -> tuple[str, Where]:
    from tidemill.web.welcome import link as make  # with the whole of the web

    where = await find(app, at)
    await app.access.audit.write(Who(who(), Role.ADMIN), "tidemill link", {"name": name, "role": role.value})
    return await make(app, where.address, name, role), where
