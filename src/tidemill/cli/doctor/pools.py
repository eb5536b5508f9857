"""Pools that keep jobs waiting, or that nobody declares any more."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.app import Tidemill
from tidemill.cli.doctor.finding import Finding
from tidemill.cli.output import moment
from tidemill.cli.pools.words import named, overridden, tripped
from tidemill.cli.target import Target
from tidemill.inspect.pools import PoolStatus
from tidemill.inspect.views import Overview
from tidemill.inspect.words import plural


def about_pools(app: Tidemill, overview: Overview, target: Target) -> Iterator[Finding]:
    for pool in overview.pools:
        yield from _closed(pool, target)
        if pool.override is not None and pool.key is None:
            yield Finding(
                about=f"pool {pool.name}",
                level="note",
                says=f"overridden: {overridden(pool.override)}",
                remedy=f"to follow the code again: {target.command('pools', 'unset', pool.name)}",
            )
        # A store alone does not tell what the code declares.
        if app.tasks and pool.key is None and pool.name not in app.pools:
            yield _undeclared(pool)


def _closed(pool: PoolStatus, target: Target) -> Iterator[Finding]:
    opens = f"to open it: {_open(pool, target)}"
    waits = f"; {plural(pool.waiting, 'job waits', 'jobs wait')}" if pool.waiting else ""
    for closure in pool.closures:
        by_hand = closure.until is None
        said = f' (it said "{closure.text}")' if closure.text else ""
        yield Finding(
            about=f"pool {named(pool)}",
            level="bad" if by_hand and pool.waiting else "note",
            says=f"{tripped(closure)}{said}{waits}",
            remedy=f"set right what the provider names, then {opens}" if by_hand else opens,
        )
    if pool.closed is not None:
        end = "" if pool.closed.until is None else f" until {moment(pool.closed.until)}"
        why = f" ({pool.closed.reason})" if pool.closed.reason else ""
        yield Finding(
            about=f"pool {named(pool)}",
            level="note",
            says=f"closed by {pool.closed.by}{end}{why}{waits}",
            remedy=opens,
        )


def _open(pool: PoolStatus, target: Target) -> str:
    return target.command("pools", "open", pool.name, *(("--key", pool.key) if pool.key else ()))


def _undeclared(pool: PoolStatus) -> Finding:
    waits = f", and {plural(pool.waiting, 'job waits', 'jobs wait')} for it" if pool.waiting else ""
    return Finding(
        about=f"pool {pool.name}",
        level="note",
        says=f"the application does not declare it any more{waits}; its last limits hold",
        remedy="nothing has to be done where another program declares it",
    )
