"""Counters never fall: counts are neither lost nor doubled when processes die or replies are lost."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import pytest

from tidemill.core.documents import Advance, AdvanceResult, DocumentKind
from tidemill.errors import StoreUnavailable
from tidemill.metrics.families import MetricSamples
from tidemill.metrics.instruments import MetricRegistry
from tidemill.metrics.rollup import SnapshotRollup, load_samples
from tidemill.metrics.snapshots import SNAPSHOT_DOCUMENT, SUM_DOCUMENT, SnapshotWriter, write_document
from tidemill.stores.memory import MemoryStore
from tidemill.testing import ManualClock, SeededEntropy


class Unlucky(MemoryStore):
    """A store that loses replies, before or after the write, while `fails` is set. After `dies_after`
    writes every write fails, as if the caller had died."""

    fails = ""
    dies_after = 1_000_000

    async def advance(self, advances: Sequence[Advance]) -> list[AdvanceResult]:
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
        metrics = MetricRegistry(lambda: 1.0)
        self.plays = metrics.counter("plays_total", "Songs played.", labels=["model"])
        self.snapshot_writer = SnapshotWriter(metrics, ENTROPY.new_id)


def _total(found: dict[str, MetricSamples]) -> float:
    return sum(amounts[0] for each in found.values() for _, amounts in each.series)


async def _shown(store: MemoryStore) -> float:
    return _total(await load_samples(store))


async def test_all_processes_are_one_sum(store: Unlucky) -> None:
    one, other = Process(), Process()
    one.plays.add(3, model="a")
    other.plays.add(4, model="a")
    other.plays.add(5, model="b")
    for process in (one, other):
        await process.snapshot_writer.tell(store)
    [each] = (await load_samples(store)).values()
    assert sorted(each.series) == [(("a",), (7,)), (("b",), (5,))]


async def test_unchanged_counters_write_no_snapshot(store: Unlucky) -> None:
    process = Process()
    await process.snapshot_writer.tell(store)
    assert await store.document_counts(DocumentKind.RECORD) == {}
    process.plays.add(model="a")
    await process.snapshot_writer.tell(store)
    before = await store.find_documents(DocumentKind.RECORD)
    await process.snapshot_writer.tell(store)
    assert await store.find_documents(DocumentKind.RECORD) == before


async def test_a_process_that_is_gone_is_folded_and_stays_counted(store: Unlucky) -> None:
    folding = SnapshotRollup(store)
    for _ in range(3):
        process = Process()
        process.plays.add(2, model="a")
        await process.snapshot_writer.tell(store)
    for _ in range(4):
        await folding.fold()
        assert await _shown(store) == 6
    left = await store.find_documents(DocumentKind.RECORD)
    assert [document.name for document in left.documents] == [SUM_DOCUMENT]


async def test_a_process_that_was_only_idle_goes_on_from_there(store: Unlucky) -> None:
    process, folding = Process(), SnapshotRollup(store)
    process.plays.add(2, model="a")
    await process.snapshot_writer.tell(store)
    for _ in range(3):
        await folding.fold()
    process.plays.add(5, model="a")
    await process.snapshot_writer.tell(store)
    assert await _shown(store) == 7
    await folding.fold()
    await folding.fold()
    process.plays.add(1, model="b")
    await process.snapshot_writer.tell(store)
    assert await _shown(store) == 8


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_lost_reply_doubles_nothing(store: Unlucky, when: str) -> None:
    process = Process()
    process.plays.add(2, model="a")
    await process.snapshot_writer.tell(store)
    process.plays.add(3, model="a")
    store.fails = when
    with pytest.raises(StoreUnavailable):
        await process.snapshot_writer.tell(store)
    store.fails = ""
    process.plays.add(1, model="a")
    await process.snapshot_writer.tell(store)
    assert await _shown(store) == 6


async def test_a_forked_process_counts_on_its_own(store: Unlucky) -> None:
    process = Process()
    process.plays.add(2, model="a")
    await process.snapshot_writer.tell(store)
    process.snapshot_writer.after_fork()
    process.plays.add(5, model="a")
    await process.snapshot_writer.tell(store)
    assert await _shown(store) == 7
    page = await store.find_documents(DocumentKind.RECORD, name=SNAPSHOT_DOCUMENT)
    assert len(page.documents) == 2


async def test_an_unreadable_snapshot_hides_no_other(store: Unlucky) -> None:
    process = Process()
    process.plays.add(2, model="a")
    await process.snapshot_writer.tell(store)
    await write_document(
        store, "tally-strange", 0, name=SNAPSHOT_DOCUMENT, state="open", record=b'[{"family": null}]'
    )
    assert await _shown(store) == 2
    folding = SnapshotRollup(store)
    for _ in range(3):
        await folding.fold()
    assert await _shown(store) == 2
    assert (await store.find_documents(DocumentKind.RECORD, name=SNAPSHOT_DOCUMENT)).documents == ()


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
        os._exit(7 if process.snapshot_writer.instruments.counted() == {} else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.parametrize("seed", range(30))
async def test_i28_any_order_of_counting_telling_folding_and_dying_adds_up(store: Unlucky, seed: int) -> None:
    """Two processes roll up at the same time and die meanwhile, replies are lost, processes start and stop.
    The sum never falls. At the end it equals the counts of all processes that had time to write."""
    chance = random.Random(seed)
    processes, foldings = [Process() for _ in range(3)], [SnapshotRollup(store), SnapshotRollup(store)]
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
                await process.snapshot_writer.tell(store)  # the process ends and another replaces it
                processes[processes.index(process)] = Process()
            case _:
                shown, before = await _shown(store), shown
                assert shown >= before
    for process in processes:
        await process.snapshot_writer.tell(store)
    assert await _shown(store) == expected
    for _ in range(4):
        await foldings[0].fold()
        assert await _shown(store) == expected


async def _unlucky_tell(store: Unlucky, process: Process, chance: random.Random) -> None:
    store.fails = chance.choice(["", "", "before", "after"])
    try:
        await process.snapshot_writer.tell(store)
    except StoreUnavailable:
        store.fails = ""
        await process.snapshot_writer.tell(
            store
        )  # the worker writes again a few seconds later, before a rollup
    store.fails = ""
