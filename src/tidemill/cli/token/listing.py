"""`tidemill token list`: who has one."""

from __future__ import annotations

import click

from tidemill.access.tokens import TokenView
from tidemill.cli.output import moment, note, print_json
from tidemill.cli.table import Column, print_table
from tidemill.cli.target import Target, with_target

COLUMNS = (
    Column("token"),
    Column("user", cut="end", least=8),
    Column("role"),
    Column("state"),
    Column("expires", goes=2),
    Column("last used", goes=1),
    Column("made", goes=4),
    Column("by", goes=3, cut="end", least=8),
)


@click.command("list")
@with_target
def listing(target: Target) -> None:
    """Show the tokens, newest first, and those that ended in the last week."""
    tokens = target.run(lambda app: app.access.tokens.list())
    if target.json:
        print_json(tokens)
    elif not tokens:
        note(f"there are no tokens yet; make one: {target.command('token', 'create', 'NAME')}")
    else:
        print_table(COLUMNS, [_row(token) for token in tokens])


def _row(token: TokenView) -> tuple[object, ...]:
    return (
        token.id,
        token.name,
        token.role,
        token.state,
        moment(token.expires),
        moment(token.used),
        moment(token.created),
        "a link" if token.by_link else token.by,
    )
