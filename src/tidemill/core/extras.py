"""Units a handler asks for while it runs, when it has to wait for them: its next claim takes them too.

A provider counts a call when it arrives, and between the claim and that call lies the first part of the
handler. So what was taken with the claim is only kept for it, without passing with time: the moment the
handler comes to its call, it is exchanged for the same units taken then.
"""

from __future__ import annotations

from typing import Protocol

from msgspec.structs import replace

from tidemill.core import accounts, ledger, reserving
from tidemill.core.accounts import Denied
from tidemill.core.calls import Batched, needs_alone
from tidemill.core.job import PRIORITY_RANGE
from tidemill.core.ledger import Ledger, Reserved, Stopped
from tidemill.core.needs import Need, together
from tidemill.core.reserving import Ask, Reservation
from tidemill.core.windows import Instant


class Asking(Batched, Protocol):
    """A job that may start."""

    @property
    def id(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def extra(self) -> tuple[Need, ...]: ...


def ask_for(
    books: Ledger, job: Asking, now: Instant, lane: tuple[str, str] | None = None
) -> tuple[Reserved, ...] | Stopped:
    """P11, P18: all that a job takes that is alone in its call."""
    needs = needs_alone(job)
    if not job.extra:
        return ledger.ask_all(books, job.id, job.priority, needs, now, lane)
    answer = ledger.ask_all(books, job.id, job.priority, together(needs, job.extra), now, lane)
    if isinstance(answer, Stopped):
        return answer
    own = {(need.pool, need.key): need for need in needs}
    extra = {(need.pool, need.key) for need in job.extra}
    found: list[Reserved] = []
    for reserved in answer:
        if reserved.place in extra:
            found += _apart(books, reserved, own.get(reserved.place), now)
        else:
            found.append(reserved)
    return tuple(found)


def exchange(
    books: Ledger, held: Reserved, need: Need, job: str, now: Instant
) -> tuple[Reserved, Reserved | None] | Denied:
    """The handler has come to its call: what was kept for it is given back and taken anew, in one step. The
    second is what stays kept for others. When it is denied nothing changes. Nobody's place is in its way: it
    had its turn when it was claimed."""
    known = books.load(held.place)
    if known is None:
        raise LookupError(f"pool {held.pool!r} is gone")
    pool, account = known
    part, rest = reserving.split(pool, held.reservation, need.units)
    free = accounts.released(pool, account, part, now)
    if held.probe:
        free = accounts.heard(free, job, now, well=False)
    answer = accounts.ask(pool, free, Ask(job, need.units, PRIORITY_RANGE[0]), now)
    if isinstance(answer, Denied):
        return answer
    ledger.save_account(books, held.place, job, account, answer.account)
    taken = Reserved(held.pool, held.key, answer.reservation, answer.probe)
    return taken, None if rest is None else replace(held, reservation=rest, probe=False)


def _apart(books: Ledger, reserved: Reserved, own: Need | None, now: Instant) -> list[Reserved]:
    """What the job needs itself, if it does, and what is kept for later."""
    known = books.load(reserved.place)
    if known is None:
        raise LookupError(f"pool {reserved.pool!r} is gone")
    pool, account = known
    found: list[Reserved] = []
    rest: Reservation | None = reserved.reservation
    if own is not None:
        part, rest = reserving.split(pool, reserved.reservation, own.units)
        found.append(replace(reserved, reservation=part))
    if rest is not None:
        account, kept = accounts.put_by(pool, account, rest, now)
        books.save(reserved.place, account)
        probe = reserved.probe and own is None
        found.append(replace(reserved, reservation=kept, probe=probe, extra=True))
    return found
