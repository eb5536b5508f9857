"""`tidemill demo`: the bundled demonstration."""

from __future__ import annotations

import click

from tidemill.cli.output import print_json


@click.command()
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON: what was promised, and whether it was kept."
)
def demo(*, as_json: bool) -> int:
    """Watch some jobs run, with all that can go wrong.

    It takes a few seconds and leaves tidemill-demo.db in this folder, to be looked at. Exit code 1 when
    something that was promised did not happen."""
    from tidemill.demo.__main__ import main

    return main(print_json if as_json else None)
