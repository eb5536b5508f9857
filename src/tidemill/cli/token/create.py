"""`tidemill token create`: let somebody in."""

from __future__ import annotations

import click

from tidemill.access.tokens import Issued
from tidemill.app import Tidemill
from tidemill.cli.output import echo, moment, note, print_json
from tidemill.cli.queues.words import who
from tidemill.cli.target import Target, with_target
from tidemill.cli.times import duration
from tidemill.seam.roles import Role, Who

ROLES = [role.value for role in Role if role is not Role.ANYBODY]


@click.command()
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(ROLES),
    default=Role.VIEWER.value,
    show_default=True,
    help="What they may do: look; steer jobs and queues too; or change everything.",
)
@click.option(
    "--expires",
    metavar="DURATION",
    callback=duration,
    help="For how long it is good, such as 30d. Default: for ever.",
)
@with_target
def create(target: Target, name: str, *, role: str, expires: float | None) -> None:
    """Make a token for the user NAME, and print it: this once, nobody can read it again.

    The name stands in the audit log and beside what the user overrides. Type the token into the sign-in of
    the dashboard, or send it as `Authorization: Bearer` to the API."""
    made = target.run_and_make(
        lambda app: _create(app, name, Role(role), expires), target.application(), declare=False
    )
    if target.json:
        print_json(made)
        return
    echo(made.secret)
    end = f"until {moment(made.token.expires)}" if made.token.expires else "until it is revoked"
    note(f"{name} is {role} with this token, {end}; it is not shown again")


async def _create(app: Tidemill, name: str, role: Role, expires: float | None) -> Issued:
    made = await app.access.tokens.create(name, role, lasts=expires, by=who())
    about = {"token": made.token.id, "name": name, "role": role.value}
    await app.access.audit.write(Who(who(), Role.ADMIN), "tidemill token create", about)
    return made
