"""Steps of the engine that a store may do once more after a lost reply, and those that write nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeVar
from unittest import mock

import pytest

from tests.engine.source import RecordsSource
from tests.engine.store import LookingStore
from tidemill.core.checkpoints import Begun, Step, Try
from tidemill.core.claims import Heartbeat, Settlement
from tidemill.core.limits import Limit
from tidemill.core.outcomes import Answer, Done
from tidemill.core.pools import PoolSettings
from tidemill.core.queues import QueueSettings
from tidemill.core.refusals import Reason
from tidemill.engine.changes import Changes
from tidemill.engine.plans import Plan
from tidemill.engine.records import Records
from tidemill.engine.wants import Rows
from tidemill.testing.conformance.driver import Driver, holding, need, new, refusing
from tidemill.testing.manual import ManualClock, SeededEntropy

T = TypeVar("T")
POOL = PoolSettings(limits=(Limit.requests(10, per="minute"),))


class RepeatingStore(LookingStore):
    """Loses the first reply to every step, and does again what may be done again."""

    async def step(self, plan: Plan, verb: Callable[[Records], T], *, repeatable: bool = True) -> T:
        answer = await super().step(plan, verb, repeatable=repeatable)
        return await super().step(plan, verb, repeatable=repeatable) if repeatable else answer


async def driver(kind: type[LookingStore]) -> Driver:
    clock = ManualClock()
    store = await kind(clock=clock, entropy=SeededEntropy(1)).open()
    await store.declare_pools({"m": POOL})
    return Driver(store, clock)


@pytest.fixture
async def repeating() -> AsyncIterator[Driver]:
    drive = await driver(RepeatingStore)
    yield drive
    await drive.store.close()


async def test_p3_units_are_reserved_once(repeating: Driver) -> None:
    await repeating.add("a")
    job = await repeating.take_one()
    assert await repeating.store.reserve(job.id, job.fence, job.claim, need("m")) is None
    assert await repeating.used("m", "requests per minute") == 1


async def test_p4_a_refusal_is_counted_once(repeating: Driver) -> None:
    told = refusing("m", Reason.OVERLOAD).observations
    assert len(await repeating.store.observe(told)) == 1
    [minute] = await repeating.store.pool_history("m", 0)
    assert minute.refusals == {"overload": 1}


async def test_k3_a_step_that_is_begun_again_by_the_same_try_is_fresh(repeating: Driver) -> None:
    await repeating.add("a")
    job = await repeating.take_one()
    by, step = Try(job.fence, job.claim, 1), Step("pay", "digest")
    assert (await repeating.store.begin_step(job.id, by, step, "park")).verdict is Begun.FRESH
    await repeating.store.forget_step(job.id, by, step)
    assert (await repeating.store.begin_step(job.id, by, step, "park")).verdict is Begun.FRESH
    answer, result = await repeating.store.keep_step(job.id, by, step, b"1", paid=True)
    assert (answer, result) == (Answer.AGAIN, b"1")


@pytest.fixture
def written() -> Iterator[list[Changes]]:
    """What every step has committed since the last `clear`."""
    real, found = RecordsSource.commit, list[Changes]()

    async def commit(self: RecordsSource, changes: Changes, rows: Rows) -> bool:
        found.append(changes)
        return await real(self, changes, rows)

    with mock.patch.object(RecordsSource, "commit", commit):
        yield found


async def test_what_says_the_same_again_writes_nothing(written: list[Changes]) -> None:
    """A row that is written although nothing has changed in it is a conflict for every other step."""
    drive = await driver(LookingStore)
    store = drive.store
    await drive.add(new("a", needs=(need("m"),)), "b")
    first, second = await drive.take_one(), await drive.take_one()
    by, step = Try(first.fence, first.claim, 1), Step("pay", "digest")
    beat = Heartbeat(worker="w", received=9, lease=30.0, held=(holding(second),))
    ended = [Settlement(first.id, first.fence, first.claim, Done())]
    again: list[Callable[[], Any]] = [
        lambda: store.declare({"q": QueueSettings()}),
        lambda: store.declare_pools({"m": POOL}),
        lambda: store.begin_step(first.id, by, step),
        lambda: store.keep_step(first.id, by, step, b"1", paid=True),
        lambda: store.extend(beat),
        lambda: store.settle(ended),
        lambda: store.pause("q", reason="repairs"),
        store.reclaim,
    ]
    for verb in again:
        await verb()
        written.clear()
        await verb()
        for changes in written:
            changed = {name: row for name in Changes.__struct_fields__ if (row := getattr(changes, name))}
            assert not changed.keys() - {"read", "topics"}
