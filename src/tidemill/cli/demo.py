"""`tidemill demo`: the bundled demonstration."""

from __future__ import annotations

import click


@click.command()
def demo() -> int:
    """Watch some jobs run, with all that can go wrong.

    It takes a few seconds and leaves tidemill-demo.db in this folder, to be looked at. Exit code 1 when
    something that was promised did not happen."""
    from tidemill.demo.__main__ import main

    return main()
