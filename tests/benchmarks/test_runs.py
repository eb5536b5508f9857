"""A run of the speed benchmark takes turns, survives whatever fails, and is taken up where it was stopped."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from benchmarks.choice import Choice
from benchmarks.kept import Run
from benchmarks.places import Place, Places
from benchmarks.plan import PLANS
from benchmarks.progress import Progress

from benchmarks import kept, page, run

MINUTE = 60.0
LOOK = Choice(only=["drain"], queues=["huey", "rq"], rounds=3)


class Nowhere(Places):
    @contextmanager
    def empty(self) -> Iterator[Place]:
        yield Place("redis", "redis://nowhere")

    def described(self) -> dict[str, str]:
        return {"Redis": "none"}


class Probe:
    """Answers in turn: figures, or what is raised."""

    def __init__(self, *answers: float | BaseException) -> None:
        self.answers, self.asked = list(answers), list[str]()

    def __call__(self, _: str, queue: str, *_rest: object) -> dict[str, float]:
        self.asked.append(queue)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return {"jobs_per_second": answer}


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Probe:
    said = Probe()
    monkeypatch.setattr(run, "probe", said)
    monkeypatch.setattr(run, "how", lambda _, queue: (f"settings of {queue}", "never"))
    return said


def measured(path: Path, asked: Choice = LOOK) -> Run:
    done = kept.read(path) if path.exists() else Run("redis", {}, asked=asked)
    run.measure(done, Nowhere(), lambda: kept.write(path, done))
    return done


def test_the_queues_take_turns_inside_each_round() -> None:
    assert [queue for _, queue in LOOK.steps("redis")] == ["huey", "rq"] * 3
    assert not LOOK.complete
    assert Choice().complete


def test_one_that_fails_is_reported_with_its_reason_and_the_others_go_on(
    tmp_path: Path, probe: Probe, capsys: pytest.CaptureFixture[str]
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


def test_a_run_that_is_stopped_goes_on_with_what_its_file_has_not(tmp_path: Path, probe: Probe) -> None:
    path = tmp_path / "run.json"
    probe.answers = [10.0, 1.0, 20.0, KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        measured(path)
    assert run.to_go_on({path: kept.read(path)}) == f"--resume {path}"
    assert kept.read(path).results["drain"] == {
        "huey": [{"jobs_per_second": 10.0}, {"jobs_per_second": 20.0}],
        "rq": [{"jobs_per_second": 1.0}],
    }
    probe.asked, probe.answers = [], [2.0, 30.0, 3.0]
    assert measured(path).results == kept.read(path).results
    assert probe.asked == ["rq", "huey", "rq"]
    assert run.to_go_on({path: kept.read(path)}) == ""
    assert kept.read(path).asked == LOOK
    assert kept.read(path).how["huey"] == ("settings of huey", "never")


def test_a_store_that_does_not_start_leaves_the_others_to_be_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def places(*_: object) -> None:
        raise RuntimeError("no server of version 13 or newer")

    monkeypatch.setattr(run, "places", places)
    done = Run("postgres", {})
    run.attempt(tmp_path / "run.json", done, None)
    assert done.failed == ["postgres: no server of version 13 or newer"]
    assert not done.complete
    assert run.to_go_on({tmp_path / "not_begun.json": done}) == "--store postgres"


def test_whoever_does_not_end_is_stopped_and_said_to_be() -> None:
    with pytest.raises(subprocess.TimeoutExpired) as stopped:
        run.said_by("timeit", ["-n1", "import time; time.sleep(60)"], patience=0.3)
    assert run.reason(stopped.value) == "it did not end within 0 s"


def test_a_complete_run_has_every_round_and_medians_of_three_where_speed_is_compared() -> None:
    asked = Choice()
    results: dict[str, dict[str, list[dict[str, float]]]] = {}
    done = Run("redis", {}, results, asked=asked)
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
    assert sum(plan.seconds for plan, _ in Choice().steps(store)) < 22 * MINUTE


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
    monkeypatch.setattr(page, "PAGE", tmp_path / "benchmarks.md")
    for store in PLANS:
        drained = {"drain": {"tidemill": [{"jobs_per_second": 9.0}]}}
        kept.write(tmp_path / f"{store}.json", Run(store, {"run": "today"}, drained))
    page.write(kept.read(tmp_path / f"{store}.json") for store in ("sqlite", "redis", "postgres"))
    said = (tmp_path / "benchmarks.md").read_text()
    order = [said.index(f"\n## {name}\n") for name in ("Redis", "PostgreSQL", "SQLite")]
    assert order == sorted(order)
