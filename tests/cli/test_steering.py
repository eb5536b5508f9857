"""Finding, showing, cancelling and retrying jobs; pausing queues."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys

import pytest

from tests.cli.support import Cli


@pytest.fixture(autouse=True)
def on_path(cli: Cli) -> None:
    """The first command makes the folder importable, as it does for a user."""
    cli.make_store()
    assert cli("jobs", "--app", "shop:app").code == 0


def test_jobs_are_found_by_filter_page_by_page(cli: Cli) -> None:
    ids = [cli.send(f"{n}@example.org") for n in range(5)]
    found = cli("jobs", "--app", "shop:app", "--json", "--queue", "mail", "--limit", "3").json
    assert [job["id"] for job in found["jobs"]] == ids[:1:-1]
    rest = cli("jobs", "--app", "shop:app", "--json", "--limit", "3", "--cursor", str(found["cursor"])).json
    assert [job["id"] for job in rest["jobs"]] == ids[1::-1]
    assert rest["jobs"][0]["payload"] == {"to": "1@example.org"}
    assert cli("jobs", "--app", "shop:app", "--json", "--state", "done").json["jobs"] == []
    assert len(cli("jobs", "--url", "sqlite:///shop.db", "--json", "--since", "1h").json["jobs"]) == 5


def test_a_table_has_one_line_per_job(cli: Cli) -> None:
    job = cli.send("a@example.org")
    lines = cli("jobs", "--app", "shop:app").out.splitlines()
    assert lines[0].split() == ["id", "queue", "task", "state", "attempts", "created", "note"]
    assert lines[1].split()[:5] == [job, "mail", "send", "ready", "0"]


def test_a_job_is_shown_cancelled_and_retried(cli: Cli) -> None:
    job = cli.send("a@example.org")
    assert cli("jobs", "show", job, "--app", "shop:app", "--json").json["state"] == "ready"
    assert cli("jobs", "cancel", job, "--reason", "typo", "--app", "shop:app").out == f"{job} cancelled\n"
    shown = cli("jobs", "--app", "shop:app", "show", job).out
    assert "reason:           typo" in shown
    assert '{"to":"a@example.org"}' in shown
    assert cli("jobs", "cancel", job, "--app", "shop:app").out == f"{job} already ended\n"
    assert cli("jobs", "retry", job, "--app", "shop:app", "--json").json["retried"] == [job]
    assert cli("jobs", "show", job, "--app", "shop:app", "--json").json["generation"] == 1


def test_a_job_that_is_not_there_fails_and_the_others_are_done(cli: Cli) -> None:
    job = cli.send("a@example.org")
    ran = cli("jobs", "cancel", "nowhere", job, "--app", "shop:app")
    assert (ran.code, ran.out) == (1, f"{job} cancelled\n")
    assert ran.err.startswith("tidemill: there is no job nowhere")
    assert cli("jobs", "show", "nowhere", "--app", "shop:app").code == 1


def test_a_failed_job_is_shown_with_its_traceback_once_and_its_log(cli: Cli) -> None:
    job = importlib.import_module("shop").bounce.enqueue_sync()
    cli.app().close_sync()
    command = [sys.executable, "-m", "tidemill", "worker", "shop:app", "--until-idle"]
    subprocess.run(command, capture_output=True, timeout=60, check=True)
    lines = cli("jobs", "show", job.id, "--app", "shop:app").out.splitlines()
    assert len([line for line in lines if line.strip() == "Traceback (most recent call last):"]) == 1
    assert len([line for line in lines if line.strip() == 'raise ConnectionError("nobody home")']) == 1
    assert "error:            ConnectionError: nobody home" in lines
    log = lines[lines.index("log:") + 1 :]
    said = [re.sub(r"^  \d\d:\d\d:\d\d ", "", line) for line in log]
    assert said == ["#1 knocking, 1", "#2 knocking, 2"]
    fields = {line.partition(":")[0] for line in lines}
    assert not fields & {"unknown_for", "claim", "number", "part", "lease"}
    found = cli("jobs", "show", job.id, "--app", "shop:app", "--json").json
    assert found["unknown_for"] == 0
    assert [line["line"] for line in found["log"]] == ["knocking, 1", "knocking, 2"]
    assert found["failed_attempts"][0]["error"]["traceback"].startswith("Traceback")


def test_a_payload_cannot_drive_the_terminal(cli: Cli) -> None:
    job = cli.send("\x1b]0;owned\x07[bold]x")
    cli("jobs", "cancel", job, "--app", "shop:app", "--reason", "\x1b[2J[red]gone")
    for arguments in (("jobs",), ("jobs", "show", job)):
        out = cli(*arguments, "--app", "shop:app").out
        assert "\x1b" not in out
        assert "[red]gone" in out


def test_queues_are_shown_with_counts_and_settings(cli: Cli) -> None:
    cli.send("a@example.org")
    (mail,) = cli("queues", "--app", "shop:app", "--json").json
    assert mail["name"] == "mail"
    assert mail["counts"]["ready"] == 1
    assert mail["settings"]["max_length"] == 50
    header, line = cli("queues", "--url", "sqlite:///shop.db").out.splitlines()
    assert header.split()[:3] == ["queue", "scheduled", "ready"]
    assert "weight=3 max_length=50" in line


def test_a_queue_is_paused_and_resumed(cli: Cli) -> None:
    cli.send("a@example.org")
    ran = cli("queues", "pause", "mail", "--for", "1h30m", "--reason", "invoice", "--app", "shop:app")
    assert ran.out.startswith("mail is paused until ")
    (mail,) = cli("queues", "--app", "shop:app", "--json").json
    assert mail["pause"]["until"] - mail["pause"]["since"] == pytest.approx(5400, abs=5)
    assert "(invoice)" in cli("queues", "--app", "shop:app").out
    assert cli("queues", "resume", "mail", "--app", "shop:app").out == "mail is open\n"
    assert cli("queues", "--app", "shop:app", "--json").json[0]["pause"] is None
    ran = cli("queues", "pause", "mail", "--until", "2100-01-01T00:00+00:00", "--app", "shop:app", "--json")
    assert ran.json["until"] == 4102444800


def test_a_mistyped_queue_is_not_made(cli: Cli) -> None:
    cli.send("a@example.org")
    ran = cli("queues", "pause", "mial", "--app", "shop:app")
    assert (ran.code, ran.err) == (1, "tidemill: there is no queue 'mial'; there are mail\n")
    assert len(cli("queues", "--app", "shop:app", "--json").json) == 1


def test_looking_changes_nothing(cli: Cli) -> None:
    """The application's declarations are written by those who enqueue or work."""
    assert cli("queues", "--app", "shop:app", "--json").json == []
