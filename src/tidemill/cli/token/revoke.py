"""`tidemill token revoke`: nobody comes in by it any more."""

from __future__ import annotations

import click

from tidemill.access.tokens import TokenView
from tidemill.app import Tidemill
from tidemill.cli import complete
from tidemill.cli.output import echo, print_json
from tidemill.cli.queues.words import who
from tidemill.cli.target import Target, with_target
from tidemill.inspect.words import plural
from tidemill.seam.roles import Role, Who


@click.command()
@click.argument("which", metavar="TOKEN_OR_USER", shell_complete=complete.tokens)
@with_target
def revoke(target: Target, which: str) -> None:
    """End one token by its id, or all that a user has. Their sessions end at once."""
    revoked = target.run(lambda app: _revoke(app, which))
    if target.json:
        print_json(revoked)
        return
    users = ", ".join(sorted({token.name for token in revoked}))
    echo(f"revoked {plural(len(revoked), 'token')} of {users}")


async def _revoke(app: Tidemill, which: str) -> tuple[TokenView, ...]:
    revoked = await app.access.tokens.revoke(which)
    for token in revoked:
        about = {"token": token.id, "name": token.name}
        await app.access.audit.write(Who(who(), Role.ADMIN), "tidemill token revoke", about)
    return revoked
