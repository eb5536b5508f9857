"""What a verb does to the accounts of all pools it concerns, in the order every store keeps to.

A store lends its accounts as a `Ledger` for the length of one step. Everything here is plain reading and
writing of values, so two stores that lend the same accounts keep the same accounts afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from tidemill.core import accounts, reserving
from tidemill.core.accounts import Account, Denied
from tidemill.core.foreign import CallFacts
from tidemill.core.lanes import Gate
from tidemill.core.needs import SEPARATOR, Need, group_in, is_aside
from tidemill.core.pool_history import Remark, of_call
from tidemill.core.pool_news import PoolNews, news_of
from tidemill.core.pools import PoolSettings, amount_of
from tidemill.core.reserving import Ask, Reservation
from tidemill.core.spending import Spent, shared_out
from tidemill.core.units import Units
from tidemill.core.windows import Instant

PLACE = tuple[str, str | None]
"""An account's name: a pool, and the key when it has keys."""

GROUP_ASKS_AGAIN = 1.0
"""So often a head of a group that was refused tries again, whatever it was told: nothing waits for a
wake-up that was lost, and a ramp that opens is followed."""
LANE_ASKS_AGAIN = 60.0
"""Lanes may be many thousand."""
ITS_LIMITS = SEPARATOR
"""In the place of a key: whoever waits for other limits, which no call that ends brings."""


class Ledger(Protocol):
    """`load` answers the pool as it is in force and its account as of this boot, None for a pool nobody
    declared. `reservations` counts those that are open. `remark` adds to the pool's history (P8). `tell`
    is for whoever asked for the step."""

    def load(self, place: PLACE) -> tuple[PoolSettings, Account] | None: ...
    def save(self, place: PLACE, account: Account) -> None: ...
    def reservations(self, place: PLACE) -> int: ...
    def remark(self, pool: str, what: Remark) -> None: ...
    def tell(self, news: PoolNews) -> None: ...


class Reserved(msgspec.Struct, frozen=True):
    """What one claim holds of one account. `extra`: for a call its handler asked for in an attempt before and
    has not come to yet."""

    pool: str
    key: str | None
    reservation: Reservation
    probe: bool = False
    extra: bool = False

    @property
    def place(self) -> PLACE:
        return self.pool, self.key


class Stopped(msgspec.Struct, frozen=True):
    """The first need that was denied. Only its account has changed: it may keep a place for the job."""

    need: Need
    denied: Denied

    def gate(self, lane: str) -> Gate:
        """Who has to wait. A job that is too large for the limits in force is nobody's fault but its own."""
        if self.denied.never:
            return Gate.LANE_SHUT if is_aside(lane) else Gate.ASIDE
        return Gate.GROUP_SHUT if self.need.key is None else Gate.LANE_SHUT


class Shut(msgspec.Struct, frozen=True):
    """Why a group of lanes of a queue, or one lane, is passed over. `until` and `again` are boot times: when
    the wait is over, and when it is asked again at the latest. `priority`: more urgent jobs are not meant.

    A group's is kept by (queue, group) until it is over or another takes its place, whether or not jobs
    wait; a lane's goes with the lane, with its head, or with one that is more urgent. A store drops it when
    the account it names has another revision, or its pool other limits."""

    pool: str
    key: str | None
    until: float
    again: float
    priority: int

    @property
    def place(self) -> PLACE:
        return self.pool, self.key

    def holds(self, boot: float) -> bool:
        return boot < self.again


def ask_all(  # noqa: PLR0917 - a job's needs are asked for whole
    ledger: Ledger,
    job: str,
    priority: int,
    needs: Iterable[Need],
    now: Instant,
    lane: tuple[str, str] | None = None,
) -> tuple[Reserved, ...] | Stopped:
    """P11: of all pools or of none. Those that many lanes share are asked first: their refusal saves
    asking for all the others. `lane` is the queue and the lane whose next job it is, if it is one."""
    taken: list[tuple[Reserved, Account, Account]] = []
    for need in sorted(needs, key=lambda need: need.key is not None):
        place = (need.pool, need.key)
        known = ledger.load(place)
        if known is None:
            continue
        wanted = Ask(job, need.units, priority, "" if lane is None else line_of(*lane, need))
        answer = accounts.ask(known[0], known[1], wanted, now)
        if isinstance(answer, Denied):
            save_account(ledger, place, job, known[1], answer.account)
            return Stopped(need, answer)
        reserved = Reserved(need.pool, need.key, answer.reservation, answer.probe)
        taken.append((reserved, known[1], answer.account))
    for reserved, before, account in taken:
        save_account(ledger, reserved.place, job, before, account)
    return tuple(reserved for reserved, _, _ in taken)


def line_of(queue: str, lane: str, need: Need) -> str:
    """Who waits behind one another for a need: what a refusal of it shuts, see `Stopped.gate`."""
    return SEPARATOR.join((queue, group_in(lane) if need.key is None else lane))


def shut_by(stopped: Stopped, priority: int, override_ends: float | None, now: Instant) -> Shut:
    """`override_ends` is the wall time when other limits will be in force, if one is known."""
    wait = stopped.denied.wait
    if override_ends is not None:
        wait = min(wait, max(0.0, override_ends - now.wall))
    of_group = stopped.need.key is None and not stopped.denied.never
    patience = GROUP_ASKS_AGAIN if of_group else LANE_ASKS_AGAIN
    return Shut(
        pool=stopped.need.pool,
        key=ITS_LIMITS if stopped.denied.never else stopped.need.key,
        until=now.boot + wait,
        again=now.boot + min(wait, patience),
        priority=priority,
    )


def conclude(  # noqa: PLR0917 - a settlement is told whole
    ledger: Ledger,
    ended: Sequence[Reserved],
    spent: Spent | None,
    job: str,
    now: Instant,
    chance: Callable[[], float],
) -> bool:
    """P13, P16: a settlement. First what was used is booked, then what the provider said is heard (its
    counts have the call in them), then whether the calls came back well. `ended` are the claim's
    reservations, none when they ended before; the store still counts them as open, and forgets them after
    this. What is said of a pool nobody declared, or of a key it cannot have, is passed over.

    P17: whether the job pays for the refusal with an attempt."""
    spent = spent or Spent()
    running = {seen.place: _running(ledger, seen.place) for seen in spent.observations}
    _give_back(ledger, [reserved for reserved in ended if reserved.extra], job, now)
    ended = [reserved for reserved in ended if not reserved.extra]
    for place in dict.fromkeys(reserved.place for reserved in ended):
        _book(ledger, [reserved for reserved in ended if reserved.place == place], spent, now)
    probes = [reserved.place for reserved in ended if reserved.probe]
    charged = False
    for seen in spent.observations:
        known = ledger.load(seen.place)
        if known is None or known[0].keyed != (seen.key is not None):
            continue
        own = [reserved for reserved in ended if reserved.place == seen.place]
        prober, call = job if seen.place in probes else None, _facts(*known, own, spent)
        if seen.refusal is not None:
            ledger.remark(seen.pool, Remark(refusals={seen.refusal.reason.value: 1}))
            charged |= accounts.spends_attempt(known[1], seen.refusal, prober, call.claimed, now)
        after = accounts.observed(
            *known,
            seen,
            prober,
            now,
            chance=0.0 if seen.refusal is None else chance(),
            running=running[seen.place],
            call=call,
        )
        save_account(ledger, seen.place, job, known[1], after)
    _hear_ends(ledger, ended, job, now, well=spent.well and spent.made)
    return charged


def _hear_ends(ledger: Ledger, ended: Sequence[Reserved], job: str, now: Instant, *, well: bool) -> None:
    """Whether the calls came back well: a probe may open its pool, and a guess may rise."""
    probes = {reserved.place for reserved in ended if reserved.probe}
    for place in dict.fromkeys(reserved.place for reserved in ended):
        known = ledger.load(place)
        if known is None or not (place in probes or (well and known[1].learned)):
            continue
        pool, before = known
        after = accounts.heard(before, job, now, well=well) if place in probes else before
        after = accounts.succeeded(pool, after, now) if well else after
        if after is not before:
            save_account(ledger, place, job, before, after)


def count_anew(ledger: Ledger, ended: Sequence[Reserved], job: str, now: Instant) -> None:
    """P14: whoever held them fell silent."""
    for reserved in ended:
        known = ledger.load(reserved.place)
        if known is None:
            continue
        account = accounts.counted_anew(*known, reserved.reservation, now)
        ledger.remark(reserved.pool, of_call(known[0], reserved.reservation, None))
        if reserved.probe:
            account = accounts.heard(account, job, now, well=False)
        ledger.save(reserved.place, account)


def withdraw(ledger: Ledger, job: str, needs: Iterable[Need]) -> None:
    """A job ended that was waiting: what it needed is nobody's any more, and others need not wait for it."""
    for need in needs:
        place = (need.pool, need.key)
        known = ledger.load(place)
        if known is not None:
            state = reserving.withdrawn(known[1].state, job)
            if state is not known[1].state:
                ledger.save(place, replace(known[1], state=state))


def save_account(ledger: Ledger, place: PLACE, job: str, before: Account, after: Account) -> None:
    ledger.save(place, after)
    if before.breaker is not after.breaker or before.learned is not after.learned:
        for news in news_of(place, job, before, after):
            ledger.tell(news)


def _give_back(ledger: Ledger, unspent: Sequence[Reserved], job: str, now: Instant) -> None:
    """P18: no call was made with them."""
    for reserved in unspent:
        if known := ledger.load(reserved.place):
            account = accounts.released(*known, reserved.reservation, now)
            if reserved.probe:
                account = accounts.heard(account, job, now, well=False)
            save_account(ledger, reserved.place, job, known[1], account)


def _facts(pool: PoolSettings, account: Account, ended: Sequence[Reserved], spent: Spent) -> CallFacts:
    """Of several calls the last one speaks: its answer came last. A request that was made without asking is
    a part of a call that was granted: when it left says nothing about when the pool let that call in."""
    calls = [of.reservation for of in ended if of.reservation.asked] or [of.reservation for of in ended[:1]]
    taken = [call.at for call in calls if call.boot == account.state.boot]
    return CallFacts(
        left=_left(pool, ended, spent),
        units=calls[-1].units if calls else {},
        claimed=max(taken, default=None),
    )


def _running(ledger: Ledger, place: PLACE) -> int:
    """Calls under way, the one that is settled among them."""
    known = ledger.load(place)
    return max(1, ledger.reservations(place) - (0 if known is None else known[1].state.unasked))


def _left(pool: PoolSettings, ended: Sequence[Reserved], spent: Spent) -> Units:
    """What our count left when the call was decided (of several the least), had it known what it used."""
    left: Units = {}
    for limit in pool.limits:
        then = [of.reservation.left[limit.name] for of in ended if limit.name in of.reservation.left]
        if then:
            reserved = sum(amount_of(of.reservation.units, limit) or 0.0 for of in ended)
            used = _used(ended[0].place, spent) or {}
            left[limit.name] = min(then) + max(0.0, reserved - used.get(limit.unit, reserved))
    return left


def _used(place: PLACE, spent: Spent) -> Units | None:
    return next((usage.units for usage in spent.usages if usage.place == place), None)


def _book(ledger: Ledger, ended: Sequence[Reserved], spent: Spent, now: Instant) -> None:
    """The reservations of one account. A usage is over all of them."""
    place = ended[0].place
    known = ledger.load(place)
    if known is None:
        return
    pool, account = known
    used = _used(place, spent)
    shares = shared_out(used, [reserved.reservation.units for reserved in ended])
    for reserved, share in zip(ended, shares, strict=True):
        if spent.made:
            account = accounts.settled(pool, account, reserved.reservation, share, now)
            ledger.remark(reserved.pool, of_call(pool, reserved.reservation, share))
        else:
            account = accounts.released(pool, account, reserved.reservation, now)
    ledger.save(place, account)
