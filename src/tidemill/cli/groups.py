"""Groups of commands that know what a mistyped one was meant to be."""

from __future__ import annotations

import click


class Group(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            from tidemill.cli.nearest import instead_of  # not for --help, which must be quick

            ctx.fail(f"no such command {args[0]!r}; {instead_of(args[0], known, shown=len(known))}")
        return super().resolve_command(ctx, args)
