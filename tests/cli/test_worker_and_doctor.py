"""Running a worker from the command line, and asking whether all is well."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from tests.cli.support import Cli
from tidemill import Tidemill
from tidemill.clock import SystemClock
from tidemill.core.claims import ClaimRequest, Heartbeat, Share


@pytest.fixture(autouse=True)
def on_path(cli: Cli) -> None:
    cli.make_store()
    assert cli("jobs", "--app", "shop:app").code == 0


@pytest.mark.parametrize("processes", [(), ("--processes", "2")], ids=["alone", "supervised"])
def test_a_worker_runs_until_idle(cli: Cli, processes: tuple[str, ...]) -> None:
    jobs = [cli.send(f"{n}@example.org") for n in range(3)]
    options = ("--until-idle", "--queues", "mail=2,other", "--lease", "10", *processes)
    command = [sys.executable, "-m", "tidemill", "worker", "shop:app", *options]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert not ran.stdout
    for job in jobs:
        found = cli("jobs", "show", job, "--app", "shop:app", "--json").json
        assert found["state"] == "done"
        assert found["result"].startswith("sent to ")


@pytest.mark.parametrize("processes", [(), ("--processes", "2")], ids=["alone", "supervised"])
@pytest.mark.parametrize(("queues", "warnings"), [("mail,nosuch", 1), ("mail", 0)])
@pytest.mark.usefixtures("cli")
def test_a_queue_the_application_does_not_know_is_warned_of_once(
    queues: str, warnings: int, processes: tuple[str, ...]
) -> None:
    options = ("--until-idle", "--json-logs", "--queues", queues, *processes)
    command = [sys.executable, "-m", "tidemill", "worker", "shop:app", *options]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    said = [json.loads(line) for line in ran.stderr.splitlines() if "neither declares" in line]
    assert [(line["level"], line["unknown"], line["known"]) for line in said] == [
        ("warning", ["nosuch"], ["mail"])
    ] * warnings


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.usefixtures("cli")
def test_a_worker_that_drained_ends_with_0(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "tidemill", "worker", "shop:app", "--json-logs"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stderr is not None
        assert any("worker started" in line for line in worker.stderr)
        worker.send_signal(number)
        _, said = worker.communicate(timeout=60)
    assert worker.returncode == 0, said


def test_all_is_well(cli: Cli) -> None:
    ran = cli("doctor", "--app", "shop:app")
    assert ran.code == 0
    assert "ok   store: sqlite:///shop.db answers" in ran.out
    assert "ok   sqlite: version 3." in ran.out
    assert "note workers: no worker is running" in ran.out


def test_a_queue_nobody_serves_and_an_expired_lease_are_found(cli: Cli) -> None:
    cli.send("a@example.org")
    cli.send("b@example.org")

    app = cli.app()

    async def leave_behind() -> None:
        store = await app.client.store()
        shares = (Share("mail", 1),)
        await store.claim(ClaimRequest(worker="gone", number=1, shares=shares, limit=1, lease=0.0))
        await store.extend(
            Heartbeat(worker="elsewhere", received=0, lease=60, queues=("feeds",), concurrency=4)
        )

    app.client.run_sync(leave_behind)
    app.close_sync()
    ran = cli("doctor", "--app", "shop:app", "--json")
    assert ran.code == 1
    findings = {finding["about"]: finding for finding in ran.json}
    assert findings["workers"]["level"] == "ok"
    assert findings["queue mail"]["level"] == "bad"
    assert "no worker serves it" in findings["queue mail"]["says"]
    assert "1 pending, 1 running" in findings["queue mail"]["says"]
    assert "past their lease" in findings["leases"]["says"]


def test_a_paused_queue_with_work_is_noted(cli: Cli) -> None:
    cli.send("a@example.org")
    cli("queues", "pause", "mail", "--app", "shop:app")
    assert "note queue mail: 1 pending" in cli("doctor", "--app", "shop:app").out


def test_a_backlog_without_any_worker_is_bad(cli: Cli) -> None:
    cli.send("a@example.org")
    ran = cli("doctor", "--app", "shop:app")
    assert ran.code == 1
    assert "bad  queue mail: 1 pending" in ran.out
    assert "no worker is running; start one: tidemill worker module:app" in ran.out


class Behind(SystemClock):
    """The wall clock of two minutes ago."""

    def wall(self) -> float:
        return super().wall() - 120


@pytest.mark.parametrize(("delay", "level"), [(1, "bad"), (100, "ok"), (600, "ok")])
def test_a_scheduled_job_is_backlog_when_it_is_overdue_by_a_minute(cli: Cli, delay: int, level: str) -> None:
    """Due 119 seconds ago, 20 seconds ago, and in eight minutes."""
    app = Tidemill("sqlite:///shop.db", clock=Behind())

    @app.task(queue="mail", name="send")
    async def send() -> None: ...

    job = send.using(delay=delay).enqueue_sync()
    app.close_sync()
    ran = cli("doctor", "--url", "sqlite:///shop.db", "--json")
    (queue,) = (finding for finding in ran.json if finding["about"] == "queue mail")
    assert (queue["level"], ran.code) == (level, int(level == "bad"))
    assert (f"overdue by more than a minute, such as {job.id}" in queue["says"]) == (level == "bad")
