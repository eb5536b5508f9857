"""`tidemill db info`: what the store is made of."""

from __future__ import annotations

import click

from tidemill.cli.output import print_fields, print_json, size
from tidemill.cli.target import Target, with_target


@click.command()
@with_target
def info(target: Target) -> None:
    """Say what the store is made of and how large it is."""
    facts = target.run(lambda app: app.store.describe())
    if target.json:
        print_json(facts)
        return
    print_fields(
        {
            "store": facts.kind,
            "engine": facts.engine,
            "location": facts.location,
            "schema": facts.schema,
            "size": size(facts.bytes),
            "free inside": size(facts.free_bytes),
        }
    )
    for warning in facts.warnings:
        print_fields({"warning": warning})
