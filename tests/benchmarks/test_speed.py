"""The speed benchmark counts rightly, divides round by round, and shows what it measured."""

from __future__ import annotations

import os
import time
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from benchmarks.adapters import ADAPTERS
from benchmarks.case import Case
from benchmarks.chart import chart
from benchmarks.cpu_time import cpu_seconds
from benchmarks.empty_stores import EmptyStore
from benchmarks.measurements import drain, latency, storage_size
from benchmarks.measurements.upper_bounds import CEILINGS, SETTINGS
from benchmarks.plan import PLANS
from benchmarks.report import markdown
from benchmarks.saved_runs import SavedRun
from benchmarks.start_log import StartLog
from benchmarks.targets import TARGETS, Target, TargetSource
from benchmarks.worker_processes import WorkerGroup

from benchmarks import measurement_process, report_page, run

REPOSITORY = Path(__file__).parents[2]


def test_every_queue_and_every_measurement_of_the_plans_exists() -> None:
    for store, plans in PLANS.items():
        for plan in plans:
            known = CEILINGS if plan.measurement == "ceilings" else ADAPTERS[store]
            assert set(plan.queues) <= set(known), plan.measurement
            assert plan.measurement in measurement_process.MEASUREMENT_FUNCTIONS
            assert set(plan.per_queue) <= set(known)
    assert set(SETTINGS) == set(CEILINGS)


def test_every_adapter_has_its_file() -> None:
    for adapters in ADAPTERS.values():
        for place in adapters.values():
            path = place.partition(":")[0].replace(".", "/")
            assert (REPOSITORY / "benchmarks" / "adapters" / f"{path}.py").exists(), place


def test_every_measure_is_a_function_of_a_case() -> None:
    for place in measurement_process.MEASUREMENT_FUNCTIONS.values():
        module, _, name = place.partition(":")
        assert callable(getattr(import_module(f"benchmarks.measurements.{module}"), name))


def test_every_target_is_about_something_that_is_measured() -> None:
    for store, targets in TARGETS.items():
        measured: dict[str, set[str]] = {}
        for plan in PLANS[store]:
            measured.setdefault(plan.measurement, set()).update(plan.queues)
        for target in targets:
            for source in (target.own, target.against):
                if source is not None:
                    assert set(source.queues) <= measured[source.measurement], target.what


def test_a_ratio_is_taken_round_by_round_against_the_fastest_of_the_others() -> None:
    def rounds(*values: float) -> list[dict[str, float]]:
        return [{"speed": value} for value in values]

    results = {"drain": {"ours": rounds(30, 10), "slow": rounds(2, 4), "fast": rounds(10, 2)}}
    against = TargetSource("drain", ("slow", "fast", "absent"), "speed")
    target = Target("drained", TargetSource("drain", ("ours",), "speed"), "at least", 2.6, against=against)
    assert target.reached(results) == [3.0, 2.5]
    assert target.met([3.0, 2.5])  # the median, 2.75
    assert not target.met([2.5, 2.5])
    results["drain"]["fast"] = [{}, {"speed": 2.0}]  # it failed once, and might have been the fastest
    assert target.reached(results) == [2.5]


def test_a_tally_says_how_many_were_started_from_when_to_when_and_how_late(tmp_path: Path) -> None:
    tally = StartLog(tmp_path / "tally", rows=2, room=2)
    view = tally.create()
    first, second = tally.row(0), tally.row(1)
    before = time.monotonic()
    for row in (first, second, second, second):
        row(before - 1.0)
    after = time.monotonic()
    assert tally.counts(view) == [1, 3]
    assert 0 <= tally.span(view) <= after - before
    late = list(tally.lateness(view))
    assert len(late) == 3  # one of the first worker, two of the second: there is no more room
    assert all(1.0 <= value <= 1.0 + after - before for value in late)


def test_marks_divide_by_the_jobs_that_were_really_started_between_them(tmp_path: Path) -> None:
    """The measuring process looks now and then: at 10 it may see 12."""
    tally = StartLog(tmp_path / "tally", rows=1, room=0)
    crew = WorkerGroup(tally, tally.create(), [])
    case = Case("growth", "tidemill", EmptyStore("redis", "", os.getpid()), 100, tmp_path)
    marks = drain.CpuAtStarts(case, crew, [10, 20])
    for started in (3, 12, 12, 25):
        marks.look(started)
    (at_ten, cpu), (at_twenty, later) = marks.seen[10], marks.seen[20]
    assert (at_ten, at_twenty) == (12, 25)
    assert marks.us_between(10, 20) == pytest.approx((later - cpu) / 13 * 1e6)


def test_cpu_time_of_a_process_is_what_it_says_itself() -> None:
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    before, mine, after = time.process_time(), cpu_seconds(os.getpid()), time.process_time()
    assert before <= mine  # and what its children took, which others may have started
    assert cpu_seconds(2**22 + 1) == 0.0  # nobody has that number
    assert after >= before


@pytest.mark.parametrize(
    ("measurement", "queue"),
    [
        ("drain", "tidemill"),
        ("drain_two", "tidemill"),
        ("latency", "tidemill"),
        ("footprint", "tidemill"),
        ("chains", "tidemill-flows"),
        ("fan_out", "tidemill-flows"),
        ("schedules_at_once", "tidemill"),
    ],
)
def test_a_small_measurement_runs_from_end_to_end(tmp_path: Path, measurement: str, queue: str) -> None:
    """In processes of their own, as in a run; no peer is needed for it."""
    figures, how = run.probe(measurement, queue, EmptyStore("sqlite", str(tmp_path)), 20, patience=60)
    assert figures
    assert "everything as it comes" in how[0]
    assert all(value > 0 for value in figures.values())


def test_a_payload_is_208_bytes_of_json() -> None:
    assert len('{"sent":0.0,"text":"' + storage_size.text() + '"}') == storage_size.PAYLOAD


def test_p99_of_a_hundred_is_the_last_but_one() -> None:
    summary = latency.summary(number / 1000 for number in range(100, 0, -1))
    assert summary == pytest.approx({"p50_ms": 50.5, "p99_ms": 99.0, "max_ms": 100.0})


def _run() -> SavedRun:
    drained = {
        "tidemill": [{"jobs_per_second": 9000.0, "worker_us_per_job": 10.0}],
        "bullmq-node": [{"jobs_per_second": 3000.0, "worker_us_per_job": 60.0}],
    }
    how = {"bullmq-node": ("concurrency=100", "removes the job after it ran")}
    return SavedRun("redis", {"run": "today"}, {"drain": drained}, ["drain of rq: it is <not> here"], how)


def test_a_report_says_what_was_reached_what_was_missed_and_what_did_not_run() -> None:
    report = markdown(_run())
    assert "| drained by one process, beside BullMQ on Node | at least 1.5 x | 3 | 3 to 3 | met |" in report
    assert "bulk, beside BullMQ on Node | at least 3 x | not measured" in report
    assert "- drain of rq: it is <not> here" in report
    assert "| bullmq-node | concurrency=100 | removes the job after it ran |" in report
    slower = _run()
    slower.results["drain"]["tidemill"][0]["jobs_per_second"] = 30.0
    assert "| at least 1.5 x | 0.01 | 0.01 to 0.01 | **missed** |" in markdown(slower)


def test_a_chart_is_drawn_with_the_best_first() -> None:
    drawn = ET.fromstring(chart("Redis", _run().results))  # noqa: S314 - drawn a moment ago
    words = [node.text for node in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert words == ["Drained by one process", "tidemill", "9,000 jobs/s", "bullmq-node", "3,000 jobs/s"]


def test_a_page_has_a_section_and_a_picture_for_each_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.report_page.PAGE", tmp_path / "benchmarks.md")
    report_page.write([_run()])
    page = (tmp_path / "benchmarks.md").read_text()
    assert page.startswith("# Speed, measured")
    assert "(benchmarks-redis.svg)" in page
    assert (tmp_path / "benchmarks-redis.svg").exists()
