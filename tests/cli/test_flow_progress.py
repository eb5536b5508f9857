"""`flows show` for steps whose jobs wait or run, and the doctor for flows that are not advanced."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Cli, claim, serve, settle
from tests.cli.test_flows import STUDIO
from tidemill.contract.store import Store
from tidemill.core.outcomes import Success

APP = ("--app", "studio:app")
STORE = ("--url", "sqlite:///shop.db")


@pytest.fixture(autouse=True)
def flow(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "studio.py").write_text(STUDIO)
    import_module("studio").send("7")


def steps(cli: Cli) -> list[str]:
    return [
        line.strip(" └─├│") for line in cli("flows", "show", "clip/7", *APP).out.split("\n\n")[1].splitlines()
    ]


def jobs(cli: Cli) -> dict[str, Any]:
    return {
        step["name"]: step["jobs"] for step in cli("flows", "show", "clip/7", *APP, "--json").json["steps"]
    }


async def _download(store: Store) -> None:
    await settle(store, await claim(store, "default"), Success(result=b'"a.mp4"'))


def test_a_step_is_running_when_its_job_runs(cli: Cli) -> None:
    assert steps(cli)[0] == "download  ready"
    assert jobs(cli) == {"download": {"ready": 1}, "cut": {}, "upload": {}, "tell": {}}
    cli.on_store(lambda store: claim(store, "default"))
    assert steps(cli)[0] == "download  running"
    assert jobs(cli)["download"] == {"running": 1}


def test_jobs_of_a_mapped_step_are_counted_by_state(cli: Cli, tmp_path: Path) -> None:
    hand_over = STUDIO.replace("sent", "gone").replace(
        "async def upload(part: str) -> str:",
        "async def upload(part: str) -> str:\n    import tidemill; raise tidemill.Snooze(3600)",
    )
    (tmp_path / "slow.py").write_text(hand_over)
    assert cli("worker", "slow:app", "--until-idle").code == 0
    assert "upload  scheduled (2 jobs, 2 scheduled)" in steps(cli)
    cli("jobs", "run", "clip/7/upload/0", *STORE, "--yes")
    assert jobs(cli)["upload"] == {"ready": 1, "scheduled": 1}
    assert steps(cli)[2].endswith("(2 jobs, 1 scheduled, 1 ready)")


def findings_about(cli: Cli, subject: str) -> list[dict[str, Any]]:
    findings = cli("doctor", *APP, "--json").json["findings"]
    return [each for each in findings if each["subject"] == subject]


def run_older_code(cli: Cli, folder: Path) -> None:
    """Runs a worker until it reaches a task that it does not know."""
    (folder / "older.py").write_text(STUDIO.replace('"studio:cut"', '"studio:slice"'))
    assert cli("worker", "older:app", "--until-idle").code == 0


def test_the_doctor_reports_flows_that_no_worker_advances(cli: Cli, tmp_path: Path) -> None:
    assert findings_about(cli, "flows") == []  # its job is ready: that concerns the queue
    run_older_code(cli, tmp_path)
    (finding,) = findings_about(cli, "flows")
    assert (finding["level"], finding["remedy"]) == ("bad", "start one: tidemill worker studio:app")
    assert finding["message"].startswith("1 flow waits to be advanced, for up to ")
    assert finding["message"].endswith(": clip/7")
    assert cli("worker", "studio:app", "--until-idle").code == 0
    assert findings_about(cli, "flows") == []


def test_a_live_worker_has_some_seconds_to_advance_a_flow(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.on_store(lambda store: serve(store, "default"))
    cli.on_store(_download)
    assert findings_about(cli, "flows") == []
    monkeypatch.setattr("tidemill.cli.doctor_jobs.ADVANCE_SECONDS", 1e-6)
    (finding,) = findings_about(cli, "flows")
    assert "workers are stuck or cannot write" in finding["remedy"]


def test_an_unknown_task_of_a_flow_is_named(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_older_code(cli, tmp_path)
    cli.on_store(lambda store: serve(store, "default"))
    monkeypatch.setattr("tidemill.cli.doctor_jobs.ADVANCE_SECONDS", 1e-6)
    (finding,) = findings_about(cli, "flows")
    assert finding["remedy"].startswith("start a worker with the code that has studio:cut;")
