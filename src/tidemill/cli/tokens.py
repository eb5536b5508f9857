"""`tidemill token` and `tidemill link`: create, list and revoke access tokens, and print a sign-in link."""

from __future__ import annotations

import re

import click

from tidemill.app import Tidemill
from tidemill.auth.tokens import IssuedToken, TokenView
from tidemill.cli import completion
from tidemill.cli.options import parse_duration_option
from tidemill.cli.output import echo, format_time, note, print_json
from tidemill.cli.overrides import current_operator
from tidemill.cli.root import CommandGroup
from tidemill.cli.store_options import CommandTarget, with_target
from tidemill.cli.terminal import Column, print_table
from tidemill.cli.web import DashboardLocation, find_dashboard
from tidemill.http_routes.routes import Role, User
from tidemill.inspect.formatting import pluralize

ROLES = [role.value for role in Role if role is not Role.PUBLIC]


@click.command()
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(ROLES),
    default=Role.VIEWER.value,
    show_default=True,
    help="viewer reads, operator also changes jobs and queues, admin changes everything.",
)
@click.option(
    "--expires",
    metavar="DURATION",
    callback=parse_duration_option,
    help="How long the token is valid, such as 30d. Default: without end.",
)
@with_target
def create(target: CommandTarget, name: str, *, role: str, expires: float | None) -> None:
    """Create a token for the user NAME and print it. It cannot be shown again.

    The audit log and overrides show the name. Enter the token on the dashboard's sign-in page, or send
    it to the API as `Authorization: Bearer`."""
    made = target.run_or_create(
        lambda app: _create_token(app, name, Role(role), expires), target.application(), declare=False
    )
    if target.json:
        print_json(made)
        return
    echo(made.secret)
    end = f"until {format_time(made.token.expires)}" if made.token.expires else "until it is revoked"
    note(f"{name} is {role} with this token, {end}; it is not shown again")


async def _create_token(app: Tidemill, name: str, role: Role, expires: float | None) -> IssuedToken:
    made = await app.auth.tokens.create(name, role, expires_in=expires, by=current_operator())
    about = {"token": made.token.id, "name": name, "role": role.value}
    await app.auth.audit.write(User(current_operator(), Role.ADMIN), "tidemill token create", about)
    return made


TOKEN_COLUMNS = (
    Column("token"),
    Column("user", truncate="end", min_width=8),
    Column("role"),
    Column("state"),
    Column("expires", drop_order=2),
    Column("last used", drop_order=1),
    Column("made", drop_order=4),
    Column("by", drop_order=3, truncate="end", min_width=8),
)


@click.command("list")
@with_target
def listing(target: CommandTarget) -> None:
    """Show the tokens, newest first, including tokens that ended in the last week."""
    tokens = target.run(lambda app: app.auth.tokens.list())
    if target.json:
        print_json(tokens)
    elif not tokens:
        note(f"there are no tokens yet; make one: {target.command('token', 'create', 'NAME')}")
    else:
        print_table(TOKEN_COLUMNS, [_token_row(token) for token in tokens])


def _token_row(token: TokenView) -> tuple[object, ...]:
    return (
        token.id,
        token.name,
        token.role,
        token.state,
        format_time(token.expires),
        format_time(token.used),
        format_time(token.created),
        "a link" if token.by_link else token.by,
    )


@click.command()
@click.argument("name", metavar="TOKEN_OR_USER", shell_complete=completion.complete_tokens)
@with_target
def revoke(target: CommandTarget, name: str) -> None:
    """Revoke one token by its id, or all tokens of a user. Their sessions end at once."""
    revoked = target.run(lambda app: _revoke_tokens(app, name))
    if target.json:
        print_json(revoked)
        return
    users = ", ".join(sorted({token.name for token in revoked}))
    echo(f"revoked {pluralize(len(revoked), 'token')} of {users}")


async def _revoke_tokens(app: Tidemill, name: str) -> tuple[TokenView, ...]:
    revoked = await app.auth.tokens.revoke(name)
    for token in revoked:
        about = {"token": token.id, "name": token.name}
        await app.auth.audit.write(User(current_operator(), Role.ADMIN), "tidemill token revoke", about)
    return revoked


@click.group(cls=CommandGroup)
@with_target
def token(_target: CommandTarget) -> None:
    """Create, list or revoke tokens for the dashboard and the HTTP API."""


for _command in (create, listing, revoke):
    token.add_command(_command)


def _check_address(_ctx: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    if value is not None and not re.match(r"https?://[^\s/?#]", value):
        raise click.BadParameter(f"must begin with https:// or http:// and name a host, is {value!r}")
    return value


@click.command()
@click.option("--name", help="The user who signs in with the link. Default: you.")
@click.option(
    "--role",
    type=click.Choice(ROLES),
    default=Role.ADMIN.value,
    show_default=True,
    help="The user's role.",
)
@click.option(
    "--at",
    metavar="ADDRESS",
    callback=_check_address,
    help="The dashboard's address. Default: web.public_url, or the running dashboard.",
)
@with_target
def link(target: CommandTarget, *, name: str | None, role: str, at: str | None) -> None:
    """Print a link that signs in to the dashboard once, within 15 minutes.

    `tidemill up` and `tidemill web` print such a link when they start. Anyone with access to the store can
    create a link."""
    found, where = target.run(lambda app: _make_link(app, name or current_operator(), Role(role), at))
    if target.json:
        print_json({"link": found, "served": where.served})
        return
    echo(found)
    note(f"good once, for a quarter of an hour; {where.describe(target)}")


async def _make_link(app: Tidemill, name: str, role: Role, at: str | None) -> tuple[str, DashboardLocation]:
    from tidemill.web.sign_in import create_sign_in_link as make  # imports the whole web package

    where = await find_dashboard(app, at)
    await app.auth.audit.write(
        User(current_operator(), Role.ADMIN), "tidemill link", {"name": name, "role": role.value}
    )
    return await make(app, where.address, name, role), where
