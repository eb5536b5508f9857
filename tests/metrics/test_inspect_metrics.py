"""Exported metrics equal a recount of the jobs, also after pruning and after workers ended."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.inspect.support import ManualWorker
from tests.metrics.prometheus_parser import ParsedMetrics
from tidemill import ConfigurationError, Filter, GiveUp, Limit, Retry, Tidemill
from tidemill.core.queues import DAY_SECONDS, Retention
from tidemill.core.states import State
from tidemill.inspect import metrics_exposition
from tidemill.metrics import families as metrics_families
from tidemill.metrics.catalogue import CATALOGUE
from tidemill.metrics.rollup import MetricsRollup
from tidemill.stores.memory import MemoryStore
from tidemill.testing import ManualClock, SeededEntropy
from tidemill.worker.event_emitter import EventEmitter
from tidemill.worker.maintenance import Pruner

ODD = 'quo"te\\back\nline é'


class Mill:
    """An application with jobs that succeed, fail, or fail once."""

    def __init__(self, url: str, **options: Any) -> None:
        self.app = app = Tidemill(url, **options)
        gone = Retention(age=0.0)
        app.queue("songs", keep_done=gone, keep_failed=gone, keep_cancelled=gone)
        app.queue(ODD)
        model = app.pool("model", Limit.requests(10_000, per="minute"), Limit.tokens(100_000, per="minute"))
        site = app.pool("site", Limit.requests(1000, per="second"), keyed=True)
        twice = Retry(attempts=2, first=0)

        @app.task(name="describe", queue="songs", pool=model, cost={"tokens": 10}, retry=twice)
        async def describe(number: int) -> None:
            if number % 5 == 0:
                raise GiveUp("no such song")
            if number % 7 == 0:
                raise ValueError("try again")

        @app.task(name="fetch", queue=ODD, pool=site.by(lambda number: f"host-{number % 20}"))
        async def fetch(number: int) -> None: ...

        self.describe, self.fetch = describe, fetch

    async def read(self) -> ParsedMetrics:
        return ParsedMetrics(await self.app.exposition())

    async def work(self, numbers: range) -> Counter[tuple[str, str]]:
        """Runs jobs in a new worker and returns their expected counts."""
        jobs = [task.job(number) for number in numbers for task in (self.describe, self.fetch)]
        await self.app.enqueue_many(jobs)
        await self.app.worker(until_idle=True, prune_every=0.05).run()
        ended: Counter[tuple[str, str]] = Counter()
        for number in numbers:
            again = number % 5 != 0 and number % 7 == 0
            ended["songs", "failed" if again or number % 5 == 0 else "done"] += 1
            ended["songs", "retried"] += again
            ended["songs", "ran"] += 1 + again
            ended[ODD, "done"] += 1
            ended[ODD, "ran"] += 1
        return ended


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres"])
async def mill(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Mill]:
    match request.param:
        case "memory":
            url = "memory://"
        case "sqlite":
            url = f"sqlite:///{tmp_path}/jobs.db"
        case name:
            url = request.getfixturevalue(f"{name}_url")
    mill = Mill(url)
    async with mill.app:
        yield mill


async def _read(app: Tidemill) -> ParsedMetrics:
    return ParsedMetrics(await app.exposition())


async def test_i28_at_rest_metrics_equal_a_recount(mill: Mill) -> None:
    """Runs twice: the second time, the first jobs are pruned and their worker has ended."""
    store, expected = mill.app.store, Counter[tuple[str, str]]()
    for numbers in (range(1, 60), range(60, 90)):
        expected += await mill.work(numbers)
        await store.prune()
        shown = await mill.read()
        for queue in ("songs", ODD):
            for what in ("done", "failed", "retried"):
                assert shown.of(f"tidemill_jobs_{what}_total", queue=queue) == expected[queue, what]
            assert shown.sum("tidemill_job_duration_seconds_count", queue=queue) == expected[queue, "ran"]
            states = Counter(job.state for job in (await store.find(Filter(queue=queue), 1000)).jobs)
            for state in State:
                assert shown.of("tidemill_queue_jobs", queue=queue, state=state) == states[state]
        for pool, queue in (("model", "songs"), ("site", ODD)):
            assert shown.of("tidemill_pool_calls_total", pool=pool) == expected[queue, "ran"]
        tokens = shown.of("tidemill_pool_units_total", pool="model", unit="tokens")
        assert tokens == 10 * expected["songs", "ran"]
    assert shown.of("tidemill_queue_jobs", queue="songs", state="done") == 0  # pruned


async def test_i28_what_waits_is_shown_and_what_was_cancelled_stays_counted(mill: Mill) -> None:
    await mill.app.enqueue_many(mill.describe.job(1) for _ in range(3))
    await mill.app.inspect.close_pool("model", by="test")
    shown = await mill.read()
    assert shown.of("tidemill_queue_jobs", queue="songs", state="ready") == 3
    assert shown.of("tidemill_pool_waiting_jobs", pool="model") == 3
    assert shown.of("tidemill_pool_open", pool="model") == 0
    assert shown.of("tidemill_pool_drain_seconds", pool="model") == math.inf
    assert shown.of("tidemill_queue_drain_seconds", queue="songs") == math.inf
    assert shown.of("tidemill_queue_latency_seconds", queue="songs") >= 0
    await mill.app.inspect.cancel(Filter(queue="songs"))
    await mill.app.store.prune()
    shown = await mill.read()
    assert shown.of("tidemill_jobs_cancelled_total", queue="songs") == 3
    assert shown.of("tidemill_queue_jobs", queue="songs", state="ready") == 0
    assert shown.of("tidemill_pool_drain_seconds", pool="model") == 0


async def test_names_of_any_kind_are_read_back_and_no_label_is_a_job_or_a_key(mill: Mill) -> None:
    await mill.work(range(1, 30))
    shown = await mill.read()
    assert ODD in shown.values
    known = {label for family in CATALOGUE for label in family.labels}
    assert shown.labels <= known | {"le"}
    assert not [value for value in shown.values if "host-" in value]
    assert shown.of("tidemill_pool_keys", pool="site") <= 20
    assert shown.kinds.items() <= {each.name: each.kind for each in CATALOGUE}.items()


async def test_the_client_of_prometheus_reads_the_same(mill: Mill) -> None:
    """The Prometheus client library parses every sample with the same name, labels and value."""
    await mill.work(range(1, 30))
    text_of_metrics = await mill.app.exposition()
    families = list(text_string_to_metric_families(text_of_metrics))
    theirs = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }
    ours = ParsedMetrics(text_of_metrics)
    assert theirs == ours.samples
    # The library treats the suffix of a counter as part of its type.
    kinds = {family.name + ("_total" if family.type == "counter" else ""): family.type for family in families}
    assert kinds == ours.kinds
    assert ODD in ours.values


async def test_a_bucket_holds_those_below_it_and_the_last_all_of_them(mill: Mill) -> None:
    await mill.work(range(1, 20))
    shown = await mill.read()
    of = {"queue": "songs", "task": "describe"}
    buckets = [
        value
        for (name, has), value in shown.samples.items()
        if name == "tidemill_job_duration_seconds_bucket" and of.items() <= dict(has).items()
    ]
    assert buckets == sorted(buckets)
    assert buckets[-1] == shown.of("tidemill_job_duration_seconds_count", **of) > 0
    assert shown.of("tidemill_job_duration_seconds_sum", **of) > 0


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_i28_counters_outlive_the_minutes_they_come_from(store: str, tmp_path: Path) -> None:
    """Runs a month of work with idle days and a clock that is set back by a day and forward again. The
    counters always equal the jobs finished so far, and never fall."""
    clock, chance = ManualClock(), random.Random(7)
    url = "memory://" if store == "memory" else f"sqlite:///{tmp_path}/jobs.db"
    mill = Mill(url, clock=clock, entropy=SeededEntropy(1))
    async with mill.app as app:
        ended = calls = 0
        for day in range(30):
            for _ in range(0 if day in (9, 10, 20) else chance.randrange(1, 6)):
                await _one(mill)
                ended, calls = ended + 1, calls + 1
                clock.advance(chance.uniform(0, DAY_SECONDS / 6))
            if day == 13:
                clock.step_wall(-DAY_SECONDS)
            if day == 16:
                clock.step_wall(DAY_SECONDS)
            clock.advance(DAY_SECONDS / 4)
            emitter = EventEmitter(app.signals, "w", clock, 0.0)
            await Pruner(app.store, MetricsRollup(app.store, clock.boot), emitter, clock.boot).prune()
            shown = await _read(app)
            assert shown.of("tidemill_jobs_done_total", queue=ODD) == ended
            assert shown.of("tidemill_pool_calls_total", pool="site") == calls
        kept = sum(minute.done for minute in await app.store.history(ODD, 0.0))
        assert kept < ended  # the store has deleted old minutes


async def _one(mill: Mill) -> None:
    await mill.fetch.enqueue(3)
    hand = ManualWorker(mill.app.store, queue=ODD, silent=True)
    hand.number = int(mill.app.clock.boot() * 1000)
    await hand.run_all()


async def test_i28_all_processes_show_the_same_counters_and_no_counter_falls(tmp_path: Path) -> None:
    """Two processes serve the dashboard without a worker; requests go to either of them."""
    one, two = (Tidemill(f"sqlite:///{tmp_path}/jobs.db") for _ in range(2))
    plays = [app.metrics.counter("plays_total", "Songs played.") for app in (one, two)]
    async with two:
        async with one:
            plays[1].add(1)
            await two.snapshot_writer.tell(two.store)
            plays[0].add(2)
            assert (await _read(one)).of("plays_total") == (await _read(two)).of("plays_total") == 1
            await one.snapshot_writer.tell(one.store)
            assert (await _read(one)).of("plays_total") == (await _read(two)).of("plays_total") == 3
            plays[0].add(4)
        assert (await _read(two)).of("plays_total") == 7  # written when the process ended


async def test_a_hanging_gauge_is_cut_off_by_its_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_exposition, "GAUGE_READ_TIMEOUT_SECONDS", 0.01)
    app = Tidemill("memory://")

    async def hangs() -> float:
        return await asyncio.Future()

    app.metrics.gauge("hangs", "Never there.", read=hangs)
    async with app, asyncio.timeout(10):
        assert (await _read(app)).of("tidemill_metric_read_failed", metric="hangs") == 1


async def test_gauges_are_read_per_request_and_a_raising_gauge_hides_no_other() -> None:
    app = Tidemill("memory://")
    songs: dict[tuple[str, ...], float] = {("pop",): 3, ("folk",): 4}

    async def pending() -> dict[tuple[str, ...], float]:
        return dict(songs)

    app.metrics.gauge("songs_pending", "Songs to do.", labels=["genre"], read=pending)
    app.metrics.gauge("songs_all", "Songs there are.", read=lambda: 70)
    app.metrics.gauge("broken", "Never there.", read=lambda: 1 / 0)
    app.metrics.gauge("mislabelled", "Never there.", read=lambda: {("a", "b"): 1.0})
    async with app:
        shown = await _read(app)
        assert shown.of("songs_pending", genre="folk") == 4
        assert shown.of("songs_all") == 70
        assert shown.sum("tidemill_metric_read_failed") == 2
        assert shown.of("tidemill_metric_read_failed", metric="broken") == 1
        songs["pop",] = 9
        assert (await _read(app)).of("songs_pending", genre="pop") == 9


async def test_metrics_of_handlers_in_other_processes_are_shown_here(tmp_path: Path) -> None:
    """Two applications share one store: one runs jobs, the other exports the metrics."""

    def build() -> tuple[Tidemill, Any]:
        app = Tidemill(f"sqlite:///{tmp_path}/jobs.db")
        words = app.metrics.counter("words_total", "Words written.", labels=["model"])
        took = app.metrics.histogram("answer_words", "Words of an answer.", bounds=[2, 10])

        @app.task(name="write")
        async def write(count: int) -> None:
            words.add(count, model="small")
            took.observe(count)

        return app, write

    (works, write), (shows, _) = build(), build()
    async with works, shows:
        for count in (1, 5, 50):
            await write.enqueue(count)
        await works.worker(until_idle=True).run()
        shown = await _read(shows)
        assert shown.of("words_total", model="small") == 56
        assert shown.of("answer_words_bucket", le="10") == 2
        assert shown.of("answer_words_count") == 3
        assert shown.sum("tidemill_job_duration_seconds_count", task="write") == 3


async def test_unused_metrics_without_labels_are_zero(tmp_path: Path) -> None:
    one, two = (Tidemill(f"sqlite:///{tmp_path}/jobs.db") for _ in range(2))
    failed, _ = [app.metrics.counter("failed_total", "Calls that failed.") for app in (one, two)]
    one.metrics.histogram("took_seconds", "Seconds of a call.", bounds=[1])
    one.metrics.counter("plays_total", "Songs played.", labels=["model"])
    async with one, two:
        shown = await _read(one)
        assert (shown.of("failed_total"), shown.of("took_seconds_count")) == (0, 0)
        assert shown.of("took_seconds_bucket", le="1") == 0
        assert "plays_total" not in shown.kinds
        failed.add(2)
        await one.snapshot_writer.tell(one.store)
        assert (await _read(one)).of("failed_total") == (await _read(two)).of("failed_total") == 2


async def test_a_scrape_changes_nothing() -> None:
    class Watched(MemoryStore):
        written = 0

        async def advance(self, advances: Any) -> Any:
            self.written += 1
            return await super().advance(advances)

    store = Watched()
    app = Tidemill(store=store)
    app.metrics.counter("plays_total", "Songs played.").add()
    async with app:
        await asyncio.gather(app.exposition(), app.exposition())
        assert store.written == 0


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0, "0"),
        (3.0, "3"),
        (-0.25, "-0.25"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
        (2.0**60, "1.152921504606847e+18"),
    ],
)
def test_numbers_are_written_as_the_format_has_them(value: float, written: str) -> None:
    assert metrics_families.format_number(value) == written


def test_the_catalogue_names_every_metric_once() -> None:
    names = [family.name for family in CATALOGUE]
    assert len(set(names)) == len(names)
    for family in CATALOGUE:
        assert family.name.endswith("_total") == (family.kind == "counter")
        assert family.help_text.endswith(".")
        assert not {"job", "key", "worker"} & set(family.labels)


def test_a_metric_of_the_application_cannot_take_the_name_of_one_of_ours() -> None:
    with pytest.raises(ConfigurationError, match="nor with tidemill_"):
        Tidemill("memory://").metrics.gauge("tidemill_workers", "Mine.")
