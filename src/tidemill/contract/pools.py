"""What providers meter: declared by code, overridden by people, kept full and never passed.

A reservation is taken by a claim, in the same step, for every pool a job needs, or by `reserve` while
it runs. It belongs to that claim and ends exactly once: with the settlement of the attempt, with a
reclaim, or by itself. The arithmetic is `core.windows` and `core.reserving`, and the stores apply it
to the state they keep per pool and key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from tidemill.core.accounts import Account, HandClosure
from tidemill.core.closing import Closure
from tidemill.core.departures import Departure
from tidemill.core.learning import Learned
from tidemill.core.needs import Need
from tidemill.core.pool_news import PoolNews
from tidemill.core.pools import PoolChanges, PoolOverride, PoolSettings
from tidemill.core.spending import Observation
from tidemill.core.units import Units


class LimitView(msgspec.Struct, frozen=True, kw_only=True):
    """`free_in` is how many seconds until the whole limit is free again, None when nobody can say.
    `learned` is what the provider was seen to allow, less than `amount`, and since when (wall)."""

    name: str
    unit: str
    amount: float
    declared: float
    used: float
    free_in: float | None
    learned: Learned | None = None


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """One pool, or one key of it. `foreign` are units somebody else was seen to use. `account` is what is
    known of it as of now, from which every wait can be computed."""

    name: str
    key: str | None
    declared: PoolSettings
    override: PoolOverride | None
    limits: tuple[LimitView, ...]
    closures: tuple[Closure, ...]
    closed: HandClosure | None
    reservations: int
    foreign: Units
    ramp: float | None
    account: Account


class PoolMinute(msgspec.Struct, frozen=True, kw_only=True):
    """One minute of a pool (`at` is its start), all its keys together: calls that ended, what they used by
    unit, and refusals by reason."""

    at: float
    calls: int
    units: Units
    refusals: dict[str, int]


class Pools(Protocol):
    """Part of the other verbs:

    P10 Insert: a need of a pool nobody declared, or that its limits could never let through
        (`PoolSettings.problem_with`), makes the group INVALID, naming pool and unit.
    P11 A claim takes what a job needs of all its pools in the same step (`core.accounts.ask`), or leaves the
        job where it is and takes nothing. The order of J31 holds among the jobs whose pools let them.
    P12 A pool that denies shuts every lane of the group for that claim, one with a key only the job's own
        lane (`core.lanes.Gate`). Shut lanes cost the next claims nothing until the wait is over, the pool's
        revision changed, a more urgent job came, or the head of the lane went; a head of every shut group is
        tried once a second at the latest, so that nothing waits for a wake-up that was lost. A job larger
        than a limit that was changed since it was accepted shuts nobody: it goes into a lane of its own
        (`core.needs.aside`), which is tried when the pool's limits change, and once a minute.
    P13 Settling ends the reservations of that claim: what `Spent.usages` say, else all of it; without a call
        (`made` is False) they are released. This holds for a stale settlement too, while the reservations
        are there: units are booked once by the reservation, not by the job (I6).
    P14 A reclaim, and a running job that goes back because its owner does not list it, count them anew.
        Cancelling a running job leaves them to its holder, and to the end of its lease.
    P15 What frees units or opens a pool rings the queues of the jobs that wait for it, and so does the end of
        a waiting job for which a place was kept (`core.ledger.withdraw`); `next_due` counts with the soonest
        end of a wait.
    P16 Observations of a settlement are applied in the same step, once: also when the settlement is stale,
        while its reservations are there or have been counted anew since (P14). A settlement that says that
        its call went well may raise what was guessed of the limits (`core.learning.recovered`).
    P17 A settlement whose refusal is to be paid for (`core.ledger.conclude` tells) becomes its `charged`, if
        it has one, and is answered CHARGED; that of the first job of a call speaks for the others of it that
        are settled behind it in the same step. A call that was claimed before an overload closed the pool
        belongs to that incident and pays nothing, whenever its extra requests (P21) left. `Settled.news`
        and `Claims.news` are what `core.ledger` told of pools in that step, once.
    P18 A job settled as `Await` stands behind the pools it waits for too, and its claim takes what it waits
        for apart from its needs (`core.extras.ask_for`). `reserve` exchanges it when the handler comes to its
        call: taken anew, at that moment, in one step, or not at all. What was not exchanged comes back with
        the settlement. A job keeps waiting for it while it is given back in its old place; any other ending,
        and a retry by hand, makes it begin anew. One that could never have all it waits for fails (P10).
    P19 A job settled as an excused `Release` keeps the number of those in a row in its first need. An attempt
        that is charged or postponed, and a retry by hand, set it back to 0.
    P20 A claim that decided answers in `Claims.waited` how many seconds passed between the call of the verb
        and the time that its units count from: as many as the store can measure on one clock, and never more
        than passed. A repeated claim (J33) answers None: its units are older.
    """

    async def declare_pools(self, pools: Mapping[str, PoolSettings]) -> None:
        """P1 As Q1: overrides, closures and what was used stay. A limit that is new starts unused; one
        whose amount changed keeps what was used of it, and what was learned of it is forgotten. Whether it
        has keys cannot be changed: jobs and accounts of the one kind would not count for the other."""
        ...

    async def override_pool(
        self,
        pool: str,
        changes: PoolChanges | None,
        *,
        by: str,
        reason: str | None = None,
        until: float | None = None,
    ) -> None:
        """P2 In the place of the override before; with the next verb on every worker. It ends by itself at
        `until`, and None ends it now."""
        ...

    async def reserve(
        self, job: str, fence: int, claim: int, need: Need, departure: Departure | None = None
    ) -> float | None:
        """P3 More units for a running job: None when they were taken, else how many seconds to wait,
        infinite when a call must end first. A claim that is not current is given nothing, for ever.
        P21 With a `departure` the store does not ask whether the units fit, because the request is made in
        any case. LATE enters the oldest reservation of that cost again at this moment, in one step, or the
        oldest of the pool when none has that cost. EXTRA takes the units beside what is reserved; it is no
        further call under way, and what the provider says is about the call that was granted. The answer is
        None; a claim that is not current changes nothing, and neither does an unknown pool."""
        ...

    async def observe(self, observations: Sequence[Observation]) -> tuple[PoolNews, ...]:
        """P4 As P16, without a settlement: for programs that run no job, and for refusals of an attempt that
        goes on. Returns the changes of pools, as `Settled.news`."""
        ...

    async def close_pool(
        self,
        pool: str,
        *,
        key: str | None = None,
        until: float | None = None,
        by: str,
        reason: str | None = None,
    ) -> None:
        """P5 A person's mark, apart from the breaker's: only `open_pool` or its time ends it."""
        ...

    async def open_pool(self, pool: str, *, key: str | None = None) -> None:
        """P6 Ends every closure of it, whoever made it, and forgets what was learned. No probe, no ramp."""
        ...

    async def pools(self) -> list[PoolView]:
        """P7 Every declared pool, and of those with keys every key that has something taken or closed."""
        ...

    async def pool_history(self, pool: str, since: float) -> list[PoolMinute]:
        """P8 Minute by minute since that wall time, quiet minutes left out, for HISTORY_KEPT. A call counts
        in the minute its reservation was settled or counted anew, with what it is taken to have used; one
        that was not made does not count. Every refusal that was told counts. No such pool: no minutes."""
        ...
