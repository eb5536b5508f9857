"""Showing, pausing, setting and emptying queues."""

from __future__ import annotations

import getpass
import socket

import pytest

from tests.cli.support import Cli, claim


@pytest.fixture(autouse=True)
def store(cli: Cli) -> None:
    cli.make_store()


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
    result = cli("queues", "pause", "mail", "--for", "1h30m", "--reason", "invoice", "--app", "shop:app")
    assert result.out.startswith("mail is paused until ")
    (mail,) = cli("queues", "--app", "shop:app", "--json").json
    assert mail["pause"]["until"] - mail["pause"]["since"] == pytest.approx(5400, abs=5)
    assert "(invoice)" in cli("queues", "--app", "shop:app").out
    assert cli("queues", "resume", "mail", "--app", "shop:app").out == "mail is open\n"
    assert cli("queues", "--app", "shop:app", "--json").json[0]["pause"] is None
    result = cli(
        "queues", "pause", "mail", "--until", "2100-01-01T00:00+00:00", "--app", "shop:app", "--json"
    )
    assert result.json["until"] == 4102444800


def test_a_mistyped_queue_is_not_created(cli: Cli) -> None:
    cli.send("a@example.org")
    result = cli("queues", "pause", "mial", "--app", "shop:app")
    assert (result.code, result.err) == (1, "tidemill: there is no queue 'mial'; there are: mail\n")
    assert len(cli("queues", "--app", "shop:app", "--json").json) == 1


def test_reading_changes_nothing(cli: Cli) -> None:
    """Only producers and workers write the application's declarations."""
    assert cli("queues", "--app", "shop:app", "--json").json == []


def test_a_pause_cannot_end_in_the_past(cli: Cli) -> None:
    cli.send("a@example.org")
    result = cli("queues", "pause", "mail", "--until", "2001-01-01", "--app", "shop:app")
    assert (result.code, result.out) == (2, "")
    assert "must be in the future" in result.err
    assert cli("queues", "--app", "shop:app", "--json").json[0]["pause"] is None


def test_info_shows_one_queue(cli: Cli) -> None:
    cli.send("a@example.org")
    output = cli("queues", "info", "mail", "--app", "shop:app").out
    assert "jobs:         1 ready" in output
    assert "max_length=50" in output
    assert "workers:      none" in output
    assert cli("queues", "info", "mail", "--app", "shop:app", "--json").json["size"] == 1
    assert cli("queues", "info", "mial", "--app", "shop:app").code == 1


def test_settings_are_overridden_and_unset(cli: Cli) -> None:
    """Code declares and people override, with author, reason and end."""
    cli.send("a@example.org")
    words = ("concurrency=5", "max_length=none", "keep_done=age=60")
    result = cli("queues", "set", "mail", *words, "--for", "1h", "--reason", "flood", "--app", "shop:app")
    assert result.out.startswith("mail: concurrency=5 max_length=none keep_done=age=60 by ")
    (mail,) = cli("queues", "--app", "shop:app", "--json").json
    assert mail["settings"]["concurrency"] == 5
    assert mail["settings"]["max_length"] is None
    assert mail["settings"]["keep_done"] == {"age": 60.0, "count": None}
    assert mail["declared"]["max_length"] == 50
    override = mail["override"]
    assert override["by"] == f"{getpass.getuser()}@{socket.gethostname()}"
    assert override["reason"] == "flood"
    assert override["until"] - override["since"] == pytest.approx(3600, abs=5)
    assert "(override)" in cli("queues", "--app", "shop:app").out

    result = cli("queues", "unset", "mail", "weight", "--app", "shop:app")
    assert (result.code, result.out) == (1, "")
    assert "nothing was changed" in result.err
    assert cli("queues", "unset", "mail", "concurrency", "--app", "shop:app").code == 0
    (mail,) = cli("queues", "--app", "shop:app", "--json").json
    assert (mail["settings"]["concurrency"], mail["settings"]["max_length"]) == (None, None)
    assert cli("queues", "unset", "mail", "--app", "shop:app").out.startswith("mail: follows the code again")
    (mail,) = cli("queues", "--app", "shop:app", "--json").json
    assert (mail["override"], mail["settings"]["max_length"]) == (None, 50)
    assert cli("queues", "unset", "mail", "--app", "shop:app").code == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("concurrency",), "'concurrency' is not SETTING=VALUE"),
        (("concurency=2",), "did you mean concurrency"),
        (
            ("concurrency=two",),
            "concurrency: must be a whole number of 1 or more, or none for no limit, is 'two'",
        ),
        (("concurrency=0",), "is '0'"),
        (("weight=none",), "weight: must be a whole number of 1 or more, is 'none'"),
        (("weight=1", "weight=2"), "weight is given twice"),
        (("keep_done=forever",), "keep_done: must be an age in seconds, a count or both"),
        (("weight=2", "--until", "2100-01-01", "--for", "1h"), "not both"),
    ],
    ids=str,
)
def test_an_invalid_setting_changes_nothing(cli: Cli, words: tuple[str, ...], says: str) -> None:
    cli.send("a@example.org")
    result = cli("queues", "set", "mail", *words, "--app", "shop:app")
    assert (result.code, result.out, len(result.err.splitlines())) == (2, "", 1)
    assert says in result.err
    assert cli("queues", "--app", "shop:app", "--json").json[0]["override"] is None


def test_an_unknown_setting_cannot_be_unset(cli: Cli) -> None:
    cli.send("a@example.org")
    result = cli("queues", "unset", "mail", "wait", "--app", "shop:app")
    assert result.code == 2
    assert "did you mean weight?" in result.err


def test_a_queue_is_emptied_when_its_name_is_repeated(cli: Cli) -> None:
    cli.send("a@example.org")
    cli.on_store(lambda store: claim(store, "mail"))
    remaining = cli("jobs", "--app", "shop:app", "--json").json["jobs"]
    for n in range(3):
        cli.send(f"{n}@example.org")
    result = cli("queues", "empty", "mail", "--app", "shop:app")
    assert (result.code, result.out) == (2, "")
    assert "3 jobs would be deleted, but there is no terminal to ask on: add --confirm mail" in result.err
    result = cli("queues", "empty", "mail", "--confirm", "mial", "--app", "shop:app")
    assert (result.code, result.out) == (2, "")
    assert "nothing was deleted" in result.err
    assert len(cli("jobs", "--app", "shop:app", "--json").json["jobs"]) == 4
    assert cli("queues", "empty", "mail", "--confirm", "mail", "--app", "shop:app").out == "3 jobs deleted\n"
    left = cli("jobs", "--app", "shop:app", "--json").json["jobs"]
    assert [job["id"] for job in left] == [job["id"] for job in remaining]
    result = cli("queues", "empty", "mail", "--confirm", "mail", "--app", "shop:app", "--json")
    assert (result.code, result.json) == (1, {"queue": "mail", "deleted": 0})
