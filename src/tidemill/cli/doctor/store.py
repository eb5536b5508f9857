"""Does the store answer, and is it set up so that it keeps its promises?"""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.cli.doctor.finding import Finding
from tidemill.cli.output import size
from tidemill.cli.target import Target
from tidemill.contract.upkeep import StoreFacts

WORTH_COMPACTING = 0.5, 64 * 1024 * 1024
"""Share of the file and bytes that must both be free before anybody is told."""


def about_store(url: str, facts: StoreFacts, target: Target) -> Iterator[Finding]:
    large = f", {size(facts.bytes)}" if facts.bytes is not None else ""
    yield Finding(about="store", level="ok", says=f"{url} answers: {facts.engine}{large}")
    for warning in facts.warnings:
        yield Finding(about="store", level="bad", says=warning)
    share, least = WORTH_COMPACTING
    free = facts.free_bytes or 0
    if facts.bytes and free >= least and free >= share * facts.bytes:
        yield Finding(
            about="store",
            level="note",
            says=f"{size(free)} of {size(facts.bytes)} are free inside the file",
            remedy=f"give them back when it is quiet: {target.command('db', 'compact')}",
        )
