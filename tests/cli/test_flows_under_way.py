"""What `flows show` says of steps whose jobs wait or run, and the doctor of flows nobody goes on with."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Cli, claim, serve, settle
from tests.cli.test_flows import STUDIO
from tidemill.contract.store import Store
from tidemill.core.outcomes import Done

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
    await settle(store, await claim(store, "default"), Done(result=b'"a.mp4"'))


def test_a_step_runs_when_its_job_does(cli: Cli) -> None:
    assert steps(cli)[0] == "download  ready"
    assert jobs(cli) == {"download": {"ready": 1}, "cut": {}, "upload": {}, "tell": {}}
    cli.on_store(lambda store: claim(store, "default"))
    assert steps(cli)[0] == "download  running"
    assert jobs(cli)["download"] == {"running": 1}


def test_of_many_jobs_each_state_is_counted(cli: Cli, tmp_path: Path) -> None:
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


def found(cli: Cli, about: str) -> list[dict[str, Any]]:
    findings = cli("doctor", *APP, "--json").json["findings"]
    return [each for each in findings if each["about"] == about]


def run_older_code(cli: Cli, folder: Path) -> None:
    """A worker that comes as far as the task it does not know, and ends."""
    (folder / "older.py").write_text(STUDIO.replace('"studio:cut"', '"studio:slice"'))
    assert cli("worker", "older:app", "--until-idle").code == 0


def test_the_doctor_says_which_flows_nobody_goes_on_with(cli: Cli, tmp_path: Path) -> None:
    assert found(cli, "flows") == []  # its job is ready: that is a matter of the queue
    run_older_code(cli, tmp_path)
    (finding,) = found(cli, "flows")
    assert (finding["level"], finding["remedy"]) == ("bad", "start one: tidemill worker studio:app")
    assert finding["says"].startswith("1 flow waits for somebody to go on, for up to ")
    assert finding["says"].endswith(": clip/7")
    assert cli("worker", "studio:app", "--until-idle").code == 0
    assert found(cli, "flows") == []


def test_a_worker_that_lives_has_some_seconds(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.on_store(lambda store: serve(store, "default"))
    cli.on_store(_download)
    assert found(cli, "flows") == []
    monkeypatch.setattr("tidemill.cli.doctor.flows.ADVANCED_WITHIN", 1e-6)
    (finding,) = found(cli, "flows")
    assert "workers are stuck or cannot write" in finding["remedy"]


def test_a_task_of_a_flow_that_no_worker_knows_is_named(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_older_code(cli, tmp_path)
    cli.on_store(lambda store: serve(store, "default"))
    monkeypatch.setattr("tidemill.cli.doctor.flows.ADVANCED_WITHIN", 1e-6)
    (finding,) = found(cli, "flows")
    assert finding["remedy"].startswith("start a worker with the code that has studio:cut;")
