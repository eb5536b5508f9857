"""Prompts, the live overview, progress bars and Ctrl-C in a real terminal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.support import Cli
from tests.cli.terminal import Terminal
from tidemill.cli.terminal import count_progress
from tidemill.cli.top import JobRate, compute_rate
from tidemill.contract.reader import QueueMinute

AT = ("--app", "shop:app")


def states(cli: Cli) -> set[str]:
    return {job["state"] for job in cli("jobs", *AT, "--json").json["jobs"]}


@pytest.mark.parametrize(
    ("answer", "code", "after"), [("y\n", 0, "cancelled"), ("n\n", 1, "ready"), ("\x04", 130, "ready")]
)
def test_a_bulk_change_asks_for_confirmation_with_the_count(
    cli: Cli, answer: str, code: int, after: str
) -> None:
    for n in range(3):
        cli.send(str(n))

    with Terminal("jobs", "cancel", "--queue", "mail", *AT) as terminal:
        terminal.until(r"cancel 3 jobs\? \[y/N\]")
        terminal.type(answer)
        ended = terminal.code()
    drawn = terminal.drawn
    assert ended == code
    assert ("3 jobs cancelled" if code == 0 else "nothing was changed") in drawn
    assert states(cli) == {after}


@pytest.mark.parametrize(("typed", "code", "left"), [("mail\n", 0, 0), ("mial\n", 2, 2), (None, 130, 2)])
def test_emptying_a_queue_asks_for_its_name(cli: Cli, typed: str | None, code: int, left: int) -> None:
    cli.send("a")
    cli.send("b")

    with Terminal("queues", "empty", "mail", *AT) as terminal:
        terminal.until("2 jobs of mail will be deleted; type its name to go on")
        if typed is None:
            terminal.interrupt()
        else:
            terminal.type(typed)
        ended = terminal.code()
    drawn = terminal.drawn
    assert ended == code, drawn
    assert "Traceback" not in drawn
    assert len(cli("jobs", *AT, "--json").json["jobs"]) == left


@pytest.mark.parametrize(("key", "code"), [("q", 0), ("\x03", 130)], ids=["q", "Ctrl-C"])
def test_the_live_overview_refreshes_and_ends(cli: Cli, key: str, code: int) -> None:
    cli.send("a")

    with Terminal("top", *AT) as terminal:
        first = terminal.until("no worker is running")
        assert "mail" in first
        cli.send("b")
        terminal.until(r"mail +2 ")
        terminal.type(key)
        ended = terminal.code()
    drawn = terminal.drawn
    assert ended == code
    assert "Traceback" not in drawn
    assert drawn.rstrip().endswith("\x1b[?25h\x1b[?1049l")  # cursor and screen are restored


def test_top_once_and_as_json(cli: Cli) -> None:
    cli.send("a")
    out = cli("top", *AT).out
    assert re.search(r"^mail +1 ", out, re.MULTILINE)
    assert len(cli("top", "--once", *AT).out.splitlines()) == len(out.splitlines())
    snapshot = cli("top", *AT, "--json").json
    assert snapshot["queues"][0]["counts"]["ready"] == 1
    assert snapshot["rates"]["mail"] == {"done": 0.0, "failed": 0.0}


def test_the_rate_covers_the_last_sixty_seconds() -> None:
    """At a quarter of the minute, three quarters of the previous minute count."""
    minutes = [
        QueueMinute(at=at, done=done, failed=4, cancelled=0, retried=0, reclaimed=0)
        for at, done in ((0.0, 100), (60.0, 40), (120.0, 8))
    ]
    assert compute_rate(minutes, 135.0) == JobRate(done=38.0, failed=7.0)
    assert compute_rate([], 135.0) == JobRate(done=0.0, failed=0.0)


def test_a_worker_in_a_terminal_drains_on_ctrl_c(cli: Cli) -> None:
    cli.send("a")

    with Terminal("up", "shop:app") as terminal:
        terminal.until("worker started")
        terminal.type("\x03")
        ended = terminal.code()
    drawn = terminal.drawn
    assert ended == 0
    assert "worker stopped" in drawn
    assert "Traceback" not in drawn


@pytest.mark.parametrize(
    ("arguments", "label"),
    [
        (("enqueue", "send", "--from", "many.jsonl", *AT), "sending"),
        (("jobs", "delete", "--queue", "mail", "--yes", *AT), "deleted"),
        (("db", "backup", "copy.db", *AT), "copying"),
        (("bench", "--jobs", "200"), "measuring"),
    ],
    ids=["enqueue", "jobs", "db", "bench"],
)
def test_long_work_shows_progress(cli: Cli, tmp_path: Path, arguments: tuple[str, ...], label: str) -> None:
    cli.send("a")
    (tmp_path / "many.jsonl").write_text('{"to": "a"}\n' * 40)
    with Terminal(*arguments) as terminal:
        terminal.until(label)
        assert terminal.code() == 0


def test_an_interruption_reports_the_progress(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), count_progress("sending", 40) as done:
        done(12)
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "tidemill: interrupted (sending): at least 12 of 40 were over\n"
