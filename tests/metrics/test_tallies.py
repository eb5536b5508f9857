"""Numbers that grow never fall: whatever becomes of whoever counted, nothing is lost or doubled."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import pytest

from tidemill.core.courses import Advance, Advanced, Kind
from tidemill.errors import StoreUnavailable
from tidemill.stores.memory import MemoryStore
from tidemill.tallies.families import Counted
from tidemill.tallies.folding import Folding, counted
from tidemill.tallies.instruments import Instruments
from tidemill.tallies.records import SUM, TALLY, write
from tidemill.tallies.tally import Tally
from tidemill.testing import ManualClock, SeededEntropy


class Unlucky(MemoryStore):
    """Replies are lost, before or after the step was done, while `fails` says so; or whoever asks dies after
    so many steps."""

    fails = ""
    dies_after = 1_000_000

    async def advance(self, advances: Sequence[Advance]) -> list[Advanced]:
        self.dies_after -= 1
        if self.dies_after < 0:
            raise StoreUnavailable("dead")
        if self.fails == "before":
            raise StoreUnavailable("cut")
        answer = await super().advance(advances)
        if self.fails == "after":
            raise StoreUnavailable("cut")
        return answer


@pytest.fixture
async def store() -> AsyncIterator[Unlucky]:
    store = Unlucky(clock=ManualClock())
    await store.open()
    yield store
    await store.close()


ENTROPY = SeededEntropy(1)


class Process:
    def __init__(self) -> None:
        metrics = Instruments(lambda: 1.0)
        self.plays = metrics.counter("plays_total", "Songs played.", labels=["model"])
        self.tally = Tally(metrics, ENTROPY.new_id)


def _total(found: dict[str, Counted]) -> float:
    return sum(amounts[0] for each in found.values() for _, amounts in each.series)


async def _shown(store: MemoryStore) -> float:
    return _total(await counted(store))


async def test_all_processes_are_one_sum(store: Unlucky) -> None:
    one, other = Process(), Process()
    one.plays.add(3, model="a")
    other.plays.add(4, model="a")
    other.plays.add(5, model="b")
    for process in (one, other):
        await process.tally.tell(store)
    [each] = (await counted(store)).values()
    assert sorted(each.series) == [(("a",), (7,)), (("b",), (5,))]


async def test_who_counts_nothing_writes_nothing(store: Unlucky) -> None:
    process = Process()
    await process.tally.tell(store)
    assert await store.course_counts(Kind.RECORD) == {}
    process.plays.add(model="a")
    await process.tally.tell(store)
    before = await store.find_courses(Kind.RECORD)
    await process.tally.tell(store)
    assert await store.find_courses(Kind.RECORD) == before


async def test_a_process_that_is_gone_is_folded_and_stays_counted(store: Unlucky) -> None:
    folding = Folding(store)
    for _ in range(3):
        process = Process()
        process.plays.add(2, model="a")
        await process.tally.tell(store)
    for _ in range(4):
        await folding.fold()
        assert await _shown(store) == 6
    left = await store.find_courses(Kind.RECORD)
    assert [course.name for course in left.courses] == [SUM]


async def test_a_process_that_was_only_idle_goes_on_from_there(store: Unlucky) -> None:
    process, folding = Process(), Folding(store)
    process.plays.add(2, model="a")
    await process.tally.tell(store)
    for _ in range(3):
        await folding.fold()
    process.plays.add(5, model="a")
    await process.tally.tell(store)
    assert await _shown(store) == 7
    await folding.fold()
    await folding.fold()
    process.plays.add(1, model="b")
    await process.tally.tell(store)
    assert await _shown(store) == 8


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_lost_reply_doubles_nothing(store: Unlucky, when: str) -> None:
    process = Process()
    process.plays.add(2, model="a")
    await process.tally.tell(store)
    process.plays.add(3, model="a")
    store.fails = when
    with pytest.raises(StoreUnavailable):
        await process.tally.tell(store)
    store.fails = ""
    process.plays.add(1, model="a")
    await process.tally.tell(store)
    assert await _shown(store) == 6


async def test_what_a_child_process_counts_is_its_own(store: Unlucky) -> None:
    process = Process()
    process.plays.add(2, model="a")
    await process.tally.tell(store)
    process.tally.after_fork()
    process.plays.add(5, model="a")
    await process.tally.tell(store)
    assert await _shown(store) == 7
    page = await store.find_courses(Kind.RECORD, name=TALLY)
    assert len(page.courses) == 2


async def test_a_tally_that_nobody_understands_hides_no_other(store: Unlucky) -> None:
    process = Process()
    process.plays.add(2, model="a")
    await process.tally.tell(store)
    await write(store, "tally-strange", 0, name=TALLY, state="open", record=b'[{"family": null}]')
    assert await _shown(store) == 2
    folding = Folding(store)
    for _ in range(3):
        await folding.fold()
    assert await _shown(store) == 2
    assert (await store.find_courses(Kind.RECORD, name=TALLY)).courses == ()


def test_a_child_counts_though_a_thread_of_its_parent_was_counting() -> None:
    process = Process()
    with process.plays.lock:
        if (child := os.fork()) == 0:
            os._exit(7 if process.plays.lock.acquire(timeout=2) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_fork_is_noticed() -> None:
    process = Process()
    process.plays.add(2, model="a")
    if (child := os.fork()) == 0:
        os._exit(7 if process.tally.instruments.counted() == {} else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.parametrize("seed", range(30))
async def test_i28_any_order_of_counting_telling_folding_and_dying_adds_up(store: Unlucky, seed: int) -> None:
    """Two fold at once and die over it, replies are lost, processes come and go. What is shown never falls,
    and at the end is what was counted by all that had the time to tell."""
    chance = random.Random(seed)
    processes, foldings = [Process() for _ in range(3)], [Folding(store), Folding(store)]
    expected, shown = 0.0, 0.0
    for _ in range(120):
        process = chance.choice(processes)
        match chance.randrange(6):
            case 0 | 1:
                process.plays.add(amount := chance.randrange(1, 9), model=chance.choice("ab"))
                expected += amount
            case 2:
                await _unlucky_tell(store, process, chance)
            case 3:
                store.dies_after = chance.choice([1, 2, 3, 100])
                with suppress(StoreUnavailable):
                    await chance.choice(foldings).fold()
                store.dies_after = 1_000_000
            case 4:
                await process.tally.tell(store)  # it ends, and another takes its place
                processes[processes.index(process)] = Process()
            case _:
                shown, before = await _shown(store), shown
                assert shown >= before
    for process in processes:
        await process.tally.tell(store)
    assert await _shown(store) == expected
    for _ in range(4):
        await foldings[0].fold()
        assert await _shown(store) == expected


async def _unlucky_tell(store: Unlucky, process: Process, chance: random.Random) -> None:
    store.fails = chance.choice(["", "", "before", "after"])
    try:
        await process.tally.tell(store)
    except StoreUnavailable:
        store.fails = ""
        await process.tally.tell(store)  # as a worker does a few seconds later, before anybody folds it
    store.fails = ""
