"""Finding jobs and showing one."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys

import apsw
import pytest

from tests.cli.support import Cli, claim, settle
from tidemill.contract.jobs import Admission, RejectedArrival
from tidemill.contract.store import Store
from tidemill.core.checkpoints import StepAttempt, StepKey
from tidemill.core.claims import Settlement
from tidemill.core.jobs import Error
from tidemill.core.outcomes import Crash, FinalFailure, RetryLater


@pytest.fixture(autouse=True)
def store(cli: Cli) -> None:
    cli.make_store()


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
    assert lines[0].split() == ["id", "queue", "task", "state", "attempt", "created", "note"]
    assert lines[1].split()[:5] == [job, "mail", "send", "ready", "0"]


def test_a_job_is_shown(cli: Cli) -> None:
    job = cli.send("a@example.org")
    assert cli("jobs", "show", job, "--app", "shop:app", "--json").json["state"] == "ready"
    assert cli("jobs", "cancel", job, "--reason", "typo", "--app", "shop:app").out == f"{job} cancelled\n"
    output = cli("jobs", "--app", "shop:app", "show", job).out
    assert "reason:           typo" in output
    assert '{"to":"a@example.org"}' in output


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
    normalized = [re.sub(r"^  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\S* ", "", line) for line in log]
    assert normalized == ["#1 knocking, 1", "#2 knocking, 2"]
    fields = {line.partition(":")[0] for line in lines}
    assert not fields & {"unknown_for", "claim", "number", "part", "lease"}
    found = cli("jobs", "show", job.id, "--app", "shop:app", "--json").json
    assert found["unknown_for"] == 0
    assert [line["line"] for line in found["log"]] == ["knocking, 1", "knocking, 2"]
    assert found["failed_attempts"][0]["error"]["traceback"].startswith("Traceback")


def test_a_jobs_checkpoints_are_shown(cli: Cli) -> None:
    """K6: a checkpoint is kept, begun while its attempt runs, or unknown after that attempt."""
    job = cli.send("a@example.org")

    async def step(store: Store) -> None:
        [taken] = (await claim(store, "mail")).jobs
        by = StepAttempt(taken.fence, taken.claim, 1)
        await store.begin_step(job, by, StepKey("ask", "0123456789"))
        await store.keep_step(job, by, StepKey("ask", "0123456789"), b'"' + b"x" * 2046 + b'"', paid=True)
        await store.keep_step(job, by, StepKey("look", "ab"), b"1", paid=False)
        await store.begin_step(job, by, StepKey("\x1bspeak", "cd"))

    async def fail(store: Store) -> None:
        [held] = [found for found in await store.get([job]) if found is not None]
        await store.settle(
            [Settlement(job, held.fence, held.claim, FinalFailure(Error("E", "m"), "unknown outcome"))]
        )

    cli.on_store(step)
    lines = cli("jobs", "show", job, "--app", "shop:app").out.splitlines()
    output = lines[lines.index("checkpoints:") + 1 :]
    normalized = [re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC[+\d:]*", "then", line) for line in output]
    assert normalized[:2] == ["  ask (01234567) paid kept then, 2.05 kB", "  look (ab) kept then, 1 B"]
    assert normalized[2].endswith("speak (cd) paid begun then")
    cli.on_store(fail)
    found = cli("jobs", "show", job, "--app", "shop:app", "--json").json["checkpoints"]
    assert [step["state"] for step in found] == ["kept", "kept", "unknown"]
    assert found[0].keys() == {"name", "arguments", "paid", "state", "begun", "kept", "size", "unknown"}


def test_a_payload_cannot_control_the_terminal(cli: Cli) -> None:
    job = cli.send("\x1b]0;owned\x07[bold]x")
    cli("jobs", "cancel", job, "--app", "shop:app", "--reason", "\x1b[2J[red]gone")
    for arguments in (("jobs",), ("jobs", "show", job)):
        out = cli(*arguments, "--app", "shop:app").out
        assert "\x1b" not in out
        assert "[red]gone" in out


def test_jobs_are_found_by_their_content(cli: Cli) -> None:
    """Q7: by text (also part of a Chinese word), by a field of the payload, by key and by tag."""
    sent = cli(
        "enqueue", "send", "to=王小明@example.org", "--app", "shop:app", "--tag", "vip", "--key", "k"
    ).out
    cli.send("ann@example.org")
    for wanted in (
        ("--text", "小明"),
        ("--field", "to=王小明@example.org"),
        ("--tag", "vip"),
        ("--key", "k"),
    ):
        found = cli("jobs", "--app", "shop:app", "--json", *wanted).json["jobs"]
        assert [job["id"] for job in found] == [sent.strip()]
        assert found[0]["key"] == "k"
        assert "lane" not in found[0]
    assert cli("jobs", "--app", "shop:app", "--json", "--text", "nobody").json["jobs"] == []
    none = cli("jobs", "--app", "shop:app", "--text", "nobody")
    assert (none.code, none.out, none.err) == (0, "", "tidemill: no job matches\n")


def test_an_unknown_queue_is_reported(cli: Cli) -> None:
    """An unknown queue must not look like an empty one."""
    cli.send("a")
    for arguments in (("jobs",), ("jobs", "--json"), ("jobs", "retry", "--yes")):
        result = cli(*arguments, "--queue", "mial", "--app", "shop:app")
        assert (result.code, result.out) == (1, "")
        assert result.err == "tidemill: there is no queue 'mial'; there are: mail\n"


def test_json_leaves_out_internal_fields(cli: Cli) -> None:
    job = cli.send("a")
    internal = {"seq", "fence", "claim", "number", "lease", "alone", "part", "unique_holds", "lane"}
    (listed,) = cli("jobs", "--app", "shop:app", "--json").json["jobs"]
    output = cli("jobs", "show", job, "--app", "shop:app", "--json").json
    assert not internal & {*listed, *output}
    assert listed.items() <= output.items()


def test_a_cancelled_job_is_listed_with_its_reason_not_an_old_error(cli: Cli) -> None:
    job = cli.send("a")
    oops = Error("ConnectionError", "nobody home")

    async def fail_once(store: Store) -> None:
        await settle(store, await claim(store, "mail"), RetryLater(60.0, oops))

    cli.on_store(fail_once)
    assert "ConnectionError: nobody home" in cli("jobs", "--app", "shop:app").out
    cli("jobs", "cancel", job, "--reason", "no longer wanted", "--app", "shop:app")
    listed = cli("jobs", "--app", "shop:app").out
    assert "no longer wanted" in listed
    assert "nobody home" not in listed


def test_a_poison_job_shows_its_attempt(cli: Cli) -> None:
    """Crashes are not counted as attempts, so the job died in its first attempt."""
    cli.send("a")

    async def crash(store: Store) -> None:
        for number in range(1, 4):
            claims = await claim(store, "mail", number=number)
            await settle(store, claims, Crash(Error("Crashed", "killed by signal 9")))

    cli.on_store(crash)
    line = cli("jobs", "--app", "shop:app").out.splitlines()[1]
    assert line.split()[3:5] == ["failed", "1"]
    assert "poison: Crashed: killed by signal 9" in line


def test_all_times_have_the_same_format(cli: Cli) -> None:
    job = cli.send("a")
    cli("jobs", "cancel", job, "--app", "shop:app")
    written = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC")
    commands = (("jobs",), ("jobs", "show", job), ("explain", job), ("top",), ("queues", "info", "mail"))
    for arguments in commands:
        out = cli(*arguments, "--app", "shop:app").out
        assert written.search(out)
        assert not re.search(r"\d\d:\d\d:\d\d(?! UTC)", out), arguments


def test_jobs_are_found_by_time(cli: Cli) -> None:
    later = cli("enqueue", "send", "to=a", "--delay", "2h", "--app", "shop:app").out.strip()
    soon = cli.send("b")

    def found(*options: str) -> list[str]:
        return [job["id"] for job in cli("jobs", "--app", "shop:app", "--json", *options).json["jobs"]]

    assert found("--since", "1m") == [soon, later]
    assert found("--until", "1m") == []
    assert found("--until", "+1m") == [soon, later]
    assert found("--time", "due", "--since", "+1h") == [later]
    assert found("--time", "due", "--until", "+1h") == [soon]
    assert found("--since", "2100-01-01") == []
    assert found("--time", "finished", "--since", "1d") == []


def test_a_running_job_shows_its_current_attempt(cli: Cli) -> None:
    job = cli.send("a")
    cli.on_store(lambda store: claim(store, "mail"))
    (found,) = cli("jobs", "--app", "shop:app", "--json").json["jobs"]
    assert (found["id"], found["state"], found["attempts"], found["attempt"]) == (job, "running", 0, 1)
    assert cli("jobs", "--app", "shop:app").out.splitlines()[1].split()[4] == "1"


def test_a_filter_before_a_subcommand_is_refused(cli: Cli) -> None:
    """It would look effective but select nothing."""
    result = cli("jobs", "--queue", "mail", "retry", "--app", "shop:app")
    assert (result.code, result.out) == (2, "")
    assert "write the filter behind the subcommand" in result.err


def test_explain_says_why_a_job_waits(cli: Cli) -> None:
    job = cli.send("a")
    result = cli("explain", job, "--app", "shop:app")
    assert result.code == 0
    assert f"{job} is ready (send, mail)" in result.out
    assert "No living worker serves the queue 'mail'" in result.out
    cli("queues", "pause", "mail", "--reason", "invoice", "--app", "shop:app")
    normalized = cli("explain", job, "--app", "shop:app", "--json").json
    assert {cause["code"] for cause in normalized["causes"]} == {"paused", "no_worker"}
    assert cli("explain", "nowhere", "--app", "shop:app").code == 1


def test_a_payload_that_is_not_json_is_shown_as_text(cli: Cli) -> None:
    """A refused arrival keeps its payload."""
    outsider = apsw.Connection("shop.db")
    outsider.execute("INSERT INTO arrivals (id, task, payload) VALUES ('f', 'send', '{糟糕')")
    outsider.close()

    async def refuse(store: Store) -> None:
        (arrival,) = await store.arrivals(10)
        error = Error("InvalidPayload", "it is not JSON")
        await store.admit([Admission(arrival, "mail", RejectedArrival(queue="mail", error=error))])

    cli.on_store(refuse)
    assert cli("jobs", "--app", "shop:app", "--json").json["jobs"][0]["payload"] == "{糟糕"
    assert '"{糟糕"' in cli("jobs", "show", "f", "--app", "shop:app").out


def test_explain_says_when_a_waiting_job_expires(cli: Cli) -> None:
    cli("enqueue", "send", "to=a", "--expires", "1h", "--id", "x", "--app", "shop:app")
    assert "Unless it starts before, it is cancelled" in cli("explain", "x", "--app", "shop:app").out


def test_a_text_filter_with_quotes_gets_a_hint(cli: Cli) -> None:
    cli.send("ann@example.org")
    assert "ann@example.org" not in cli("jobs", "--text", '"ann@example.org"', "--app", "shop:app").out
    assert "leave out their quotes" in cli("jobs", "--text", '"ann@example.org"', "--app", "shop:app").err
    assert cli("jobs", "--text", "nobody", "--app", "shop:app").err == "tidemill: no job matches\n"
