"""Verbs that a store may repeat after a lost reply, and verbs that write nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeVar
from unittest import mock

import pytest

from tests.engine.row_source import RecordsSource
from tests.engine.store import PrefetchStore
from tidemill.core.checkpoints import StepAttempt, StepKey, StepVerdict
from tidemill.core.claims import Heartbeat, Settlement
from tidemill.core.feedback import Reason
from tidemill.core.limits import Limit
from tidemill.core.outcomes import Success, WriteAnswer
from tidemill.core.pools import PoolSettings
from tidemill.core.queues import QueueSettings
from tidemill.engine.changes import Changes
from tidemill.engine.queries import Rows
from tidemill.engine.read_sets import ReadSet
from tidemill.engine.records import Records
from tidemill.testing.clocks import ManualClock, SeededEntropy
from tidemill.testing.conformance.fixtures import StoreDriver, held_job, need, new_job, refusal_of_call

T = TypeVar("T")
POOL = PoolSettings(limits=(Limit.requests(10, per="minute"),))


class RepeatingStore(PrefetchStore):
    """Loses the first reply to every verb, and repeats the repeatable ones."""

    async def step(self, plan: ReadSet, verb: Callable[[Records], T], *, repeatable: bool = True) -> T:
        answer = await super().step(plan, verb, repeatable=repeatable)
        return await super().step(plan, verb, repeatable=repeatable) if repeatable else answer


async def make_driver(kind: type[PrefetchStore]) -> StoreDriver:
    clock = ManualClock()
    store = await kind(clock=clock, entropy=SeededEntropy(1)).open()
    await store.declare_pools({"m": POOL})
    return StoreDriver(store, clock)


@pytest.fixture
async def repeating() -> AsyncIterator[StoreDriver]:
    driver = await make_driver(RepeatingStore)
    yield driver
    await driver.store.close()


async def test_p3_units_are_reserved_once(repeating: StoreDriver) -> None:
    await repeating.add("a")
    job = await repeating.take_one()
    assert await repeating.store.reserve(job.id, job.fence, job.claim, need("m")) is None
    assert await repeating.used("m", "requests per minute") == 1


async def test_p4_a_refusal_is_counted_once(repeating: StoreDriver) -> None:
    observations = refusal_of_call("m", Reason.OVERLOAD).observations
    assert len(await repeating.store.observe(observations)) == 1
    [minute] = await repeating.store.pool_history("m", 0)
    assert minute.refusals == {"overload": 1}


async def test_k3_repeating_the_begin_of_a_step_answers_fresh(repeating: StoreDriver) -> None:
    await repeating.add("a")
    job = await repeating.take_one()
    by, step = StepAttempt(job.fence, job.claim, 1), StepKey("pay", "digest")
    assert (await repeating.store.begin_step(job.id, by, step, "park")).verdict is StepVerdict.FRESH
    await repeating.store.forget_step(job.id, by, step)
    assert (await repeating.store.begin_step(job.id, by, step, "park")).verdict is StepVerdict.FRESH
    answer, result = await repeating.store.keep_step(job.id, by, step, b"1", paid=True)
    assert (answer, result) == (WriteAnswer.AGAIN, b"1")


@pytest.fixture
def written() -> Iterator[list[Changes]]:
    """Collects the changes that were committed since the last `clear`."""
    real, found = RecordsSource.commit, list[Changes]()

    async def commit(self: RecordsSource, changes: Changes, rows: Rows) -> bool:
        found.append(changes)
        return await real(self, changes, rows)

    with mock.patch.object(RecordsSource, "commit", commit):
        yield found


async def test_repeating_a_verb_without_a_change_writes_nothing(written: list[Changes]) -> None:
    """A row that is written without a change is a conflict for every other transaction."""
    driver = await make_driver(PrefetchStore)
    store = driver.store
    await driver.add(new_job("a", needs=(need("m"),)), "b")
    first, second = await driver.take_one(), await driver.take_one()
    by, step = StepAttempt(first.fence, first.claim, 1), StepKey("pay", "digest")
    beat = Heartbeat(worker="w", received=9, lease=30.0, held=(held_job(second),))
    ended = [Settlement(first.id, first.fence, first.claim, Success())]
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


def changes(**given: Any) -> Changes:
    nothing: dict[str, Any] = dict.fromkeys(Changes.__struct_fields__, ())
    return Changes(**nothing | given)


def test_reads_and_topics_are_not_changes() -> None:
    assert changes().is_empty
    assert changes(read=("a",), topics=("queue q",)).is_empty


@pytest.mark.parametrize("field", sorted(set(Changes.__struct_fields__) - {"read", "topics"}))
def test_every_other_field_is_a_change(field: str) -> None:
    assert not changes(**{field: ("something",)}).is_empty
