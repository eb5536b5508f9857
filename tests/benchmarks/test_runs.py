"""A run of the speed benchmark takes turns, survives whatever fails, and is taken up where it was stopped."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from benchmarks.empty_stores import EmptyStore, StoreFactory
from benchmarks.plan import PLANS
from benchmarks.progress import Progress
from benchmarks.saved_runs import SavedRun
from benchmarks.selection import Selection

from benchmarks import report_page, run, saved_runs

MINUTE = 60.0
LOOK = Selection(only=["drain"], queues=["huey", "rq"], rounds=3)


class NoStores(StoreFactory):
    @contextmanager
    def empty(self) -> Iterator[EmptyStore]:
        yield EmptyStore("redis", "redis://nowhere")

    def described(self) -> dict[str, str]:
        return {"Redis": "none"}


class ScriptedMeasurement:
    """Answers in turn: figures, or what is raised."""

    def __init__(self, *answers: float | BaseException) -> None:
        self.answers, self.asked = list(answers), list[str]()

    def __call__(self, _: str, queue: str, *_rest: object) -> run.MeasurementResult:
        self.asked.append(queue)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return run.MeasurementResult({"jobs_per_second": answer}, (f"settings of {queue}", "never"))


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> ScriptedMeasurement:
    script = ScriptedMeasurement()
    monkeypatch.setattr(run, "probe", script)
    return script


def measured(path: Path, asked: Selection = LOOK) -> SavedRun:
    done = saved_runs.read(path) if path.exists() else SavedRun("redis", {}, asked=asked)
    run.measure(done, NoStores(), lambda: saved_runs.write(path, done))
    return done


def test_the_queues_take_turns_inside_each_round() -> None:
    assert [queue for _, queue in LOOK.steps("redis")] == ["huey", "rq"] * 3
    assert not LOOK.complete
    assert Selection().complete


def test_a_failed_measurement_is_reported_and_the_others_continue(
    tmp_path: Path, probe: ScriptedMeasurement, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = subprocess.CalledProcessError(1, "probe", stderr="Traceback\nImportError: no module named rq\n")
    slow = subprocess.TimeoutExpired("probe", 160.0)
    probe.answers = [10.0, failed, 20.0, slow, 30.0]
    done = measured(tmp_path / "run.json")
    assert done.results["drain"]["huey"] == [{"jobs_per_second": speed} for speed in (10.0, 20.0, 30.0)]
    assert done.results["drain"]["rq"] == [{}, {}, {}]
    assert probe.asked == ["huey", "rq", "huey", "rq", "huey"]  # what failed twice is not tried again
    assert done.failed == [
        "drain of rq: ImportError: no module named rq",
        "drain of rq: it did not end within 160 s",
    ]
    assert done.how == {"huey": ("settings of huey", "never")}
    assert "[6/6, " in capsys.readouterr().out


def test_a_resumed_run_measures_only_the_missing_results(tmp_path: Path, probe: ScriptedMeasurement) -> None:
    path = tmp_path / "run.json"
    probe.answers = [10.0, 1.0, 20.0, KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        measured(path)
    assert run.format_resume_command({path: saved_runs.read(path)}) == f"--resume {path}"
    assert saved_runs.read(path).results["drain"] == {
        "huey": [{"jobs_per_second": 10.0}, {"jobs_per_second": 20.0}],
        "rq": [{"jobs_per_second": 1.0}],
    }
    probe.asked, probe.answers = [], [2.0, 30.0, 3.0]
    assert measured(path).results == saved_runs.read(path).results
    assert probe.asked == ["rq", "huey", "rq"]
    assert run.format_resume_command({path: saved_runs.read(path)}) == ""
    assert saved_runs.read(path).asked == LOOK
    assert saved_runs.read(path).how["huey"] == ("settings of huey", "never")


def test_a_store_that_does_not_start_leaves_the_others_to_be_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create_factory(*_: object) -> None:
        raise RuntimeError("no server of version 13 or newer")

    monkeypatch.setattr(run, "create_factory", create_factory)
    done = SavedRun("postgres", {})
    run.attempt(tmp_path / "run.json", done, None)
    assert done.failed == ["postgres: no server of version 13 or newer"]
    assert not done.complete
    assert run.format_resume_command({tmp_path / "not_begun.json": done}) == "--store postgres"


def test_a_module_over_its_time_limit_is_stopped_and_reported() -> None:
    with pytest.raises(subprocess.TimeoutExpired) as stopped:
        run.run_module("timeit", ["-n1", "import time; time.sleep(60)"], patience=0.3)
    assert run.reason(stopped.value) == "it did not end within 0 s"


def test_a_complete_run_has_every_round_and_medians_of_three_where_speed_is_compared() -> None:
    asked = Selection()
    results: dict[str, dict[str, list[dict[str, float]]]] = {}
    done = SavedRun("redis", {}, results, asked=asked)
    for plan, queue in asked.steps("redis"):
        assert not done.complete
        results.setdefault(plan.measurement, {}).setdefault(queue, []).append({"figure": 1.0})
    assert done.complete
    few = {plan.measurement for plans in PLANS.values() for plan in plans if plan.rounds < 3}
    assert few == {
        "blocked_lane",
        "footprint",
        "growth",
        "growth_under_snapshot",
        "idle",
        "schedules_spread",
        "small",
    }


@pytest.mark.parametrize("store", list(PLANS))
def test_a_complete_run_of_a_store_is_meant_to_take_about_twenty_minutes(store: str) -> None:
    assert sum(plan.seconds for plan, _ in Selection().steps(store)) < 22 * MINUTE


def test_the_estimate_follows_the_pace_of_the_machine() -> None:
    plan = PLANS["redis"][0]
    progress = Progress([(plan, "lua-claim")] * 20)
    assert progress.to_go(0.0) == 20 * plan.seconds
    for _ in range(10):
        progress.step()
    assert progress.to_go(20 * plan.seconds) == pytest.approx(20 * plan.seconds)  # twice as slow as planned


def test_files_of_several_runs_are_joined_to_one_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_page, "PAGE", tmp_path / "benchmarks.md")
    for store in PLANS:
        drained = {"drain": {"tidemill": [{"jobs_per_second": 9.0}]}}
        saved_runs.write(tmp_path / f"{store}.json", SavedRun(store, {"run": "today"}, drained))
    report_page.write(
        saved_runs.read(tmp_path / f"{store}.json") for store in ("sqlite", "redis", "postgres")
    )
    page = (tmp_path / "benchmarks.md").read_text()
    order = [page.index(f"\n## {name}\n") for name in ("Redis", "PostgreSQL", "SQLite")]
    assert order == sorted(order)
