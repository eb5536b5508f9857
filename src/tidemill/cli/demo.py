"""`tidemill demo`: runs the demo of the bundled applications."""

from __future__ import annotations

import click

from tidemill.cli.output import print_json

ENTRY_POINT_GROUP = "tidemill.demo"
INSTALL_HINT = "pip install 'tidemill[articles,music]'"


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the checks and their results as JSON.")
def demo(*, as_json: bool) -> int:
    """Run two applications inside the quotas of a simulated provider.

    It takes less than a minute and leaves the folder tidemill-demo for inspection. The exit code is 1 if
    a check fails."""
    from importlib.metadata import entry_points

    found = next(iter(entry_points(group=ENTRY_POINT_GROUP)), None)
    if found is None:
        raise click.UsageError(f"demo: the bundled applications are not installed; {INSTALL_HINT}")
    try:
        code: int = found.load()(print_json if as_json else None)
    except ModuleNotFoundError as error:
        raise click.UsageError(
            f"demo: needs the package of the module {error.name!r}, which is not installed; {INSTALL_HINT}"
        ) from error
    return code
