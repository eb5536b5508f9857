"""Tables at every width, and ids that are shortened."""

from __future__ import annotations

import importlib
import re

import pytest

from tests.cli.support import Cli
from tests.cli.terminal import Terminal
from tidemill.cli.table import Column, fitted

AT = ("--app", "shop:app")
JOBS = ["id", "queue", "task", "state", "attempt", "created", "note"]


def shown(*arguments: str, columns: int) -> list[str]:
    with Terminal(*arguments, *AT, columns=columns) as terminal:
        assert terminal.code() == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.drawn)
    return [line.rstrip() for line in plain.splitlines()]


@pytest.mark.parametrize("columns", [80, 100, 140])
def test_an_id_can_be_copied_and_headings_are_whole(cli: Cli, columns: int) -> None:
    job = cli.send("a")
    cli("jobs", "cancel", job, "--reason", "an error that goes on and on " * 5, *AT)
    heading, line, *_ = shown("jobs", columns=columns)
    assert line.startswith(f"{job}  ")
    assert line.endswith("…")
    assert max(len(heading), len(line)) <= columns
    words = heading.split()
    assert words == [name for name in JOBS if name in words]
    assert {"id", "task", "state", "note"} <= set(words)
    assert (words == JOBS) == (columns >= 140)


@pytest.mark.parametrize("command", [("queues",), ("top", "--once")], ids=" ".join)
@pytest.mark.parametrize("columns", [80, 100, 140])
def test_queues_keep_what_matters(cli: Cli, command: tuple[str, ...], columns: int) -> None:
    cli.send("a")
    cli("queues", "pause", "mail", "--reason", "the provider is down " * 9, *AT)
    lines = shown(*command, columns=columns)
    heading = next(line for line in lines if line.startswith("queue "))
    assert {"queue", "ready", "running", "failed", "paused"} <= set(heading.split())
    assert set(heading.split()) <= {*cli(*command, *AT).out.split()}
    line = next(line for line in lines if line.startswith("mail "))
    assert "yes (the p" in line
    assert max(len(heading), len(line)) <= columns


def test_what_there_is_no_room_for_is_named(cli: Cli) -> None:
    cli.send("a")
    assert "tidemill: no room for created; --json has all" in shown("jobs", columns=80)


COLUMNS = (Column("id"), Column("task", goes=1, cut="start"), Column("note", goes=2, cut="end"))


@pytest.mark.parametrize("width", range(5, 90))
def test_a_table_fits(width: int) -> None:
    """Whatever the script, and however narrow: only an id may go beyond the edge."""
    from rich.cells import cell_len

    rows = [("0123456789", "shop.orders.send", "月亮代表我的心 " * 4), ("1", "b", "short\nand two lines")]
    table = fitted(COLUMNS, rows, width)
    assert all(cell_len(line) <= max(width, 10) for line in (table.heading, *table.lines))
    assert table.lines[0].startswith("0123456789")
    assert table.gone == [name for name in ("task", "note") if name not in table.heading.split()]
    if "note" in table.heading:
        assert (
            len({line.index(word) for line, word in ((table.heading, "note"), (table.lines[1], "short"))})
            == 1
        )
    if "task" in table.heading:
        assert "send  " in table.lines[0] or table.lines[0].endswith("send")


def test_the_beginning_of_an_id_is_enough(cli: Cli) -> None:
    first, second = cli.send("a"), cli.send("b")
    common = next(n for n in range(32) if first[n] != second[n])
    unique = max(8, common + 1)
    assert f"{first} is ready" in cli("explain", first[:unique], *AT).out
    assert cli("jobs", "show", second[:unique], *AT, "--json").json["id"] == second
    assert (
        cli("jobs", "cancel", first[:unique], second, *AT).out == f"{first} cancelled\n{second} cancelled\n"
    )
    assert cli("jobs", "delete", first[:unique], *AT, "--json").json["changed"] == [first]


@pytest.mark.parametrize("command", [("jobs", "show"), ("jobs", "delete"), ("explain",)], ids=" ".join)
def test_a_beginning_that_several_have_changes_nothing(cli: Cli, command: tuple[str, ...]) -> None:
    send = importlib.import_module("shop").send
    for n in range(7):
        send.using(id=f"january-{n}").enqueue_sync("a")
    cli.app().close_sync()
    ran = cli(*command, "january-", *AT)
    assert (ran.code, ran.out) == (2, "")
    newest = ", ".join(f"january-{n} (send, ready)" for n in range(6, 1, -1))
    assert f"'january-' could be {newest} and 2 others; write more of the id" in ran.err
    short = cli(*command, "january", *AT)
    assert short.code == 1
    assert "there is no job 'january': the id is wrong, or it was pruned" in short.err
    assert "the beginning of an id is enough with 8 characters or more" in short.err
    assert len(cli("jobs", *AT, "--json").json["jobs"]) == 7


def test_an_id_that_is_there_is_meant_as_it_is(cli: Cli) -> None:
    send = importlib.import_module("shop").send
    for name in ("january-1", "january-10"):
        send.using(id=name).enqueue_sync("a")
    cli.app().close_sync()
    assert cli("jobs", "cancel", "january-1", *AT).out == "january-1 cancelled\n"
