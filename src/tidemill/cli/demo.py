"""`tidemill demo`: the bundled demonstration."""

from __future__ import annotations

import click


@click.command()
def demo() -> int:
    """Watch some jobs run, on a file that is thrown away.

    Exit code 1 when something that was promised did not happen."""
    from tidemill.demo.__main__ import main

    return main()
