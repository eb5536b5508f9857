"""Tables at every width, and shortened ids."""

from __future__ import annotations

import importlib
import re

import pytest

from tests.cli.support import Cli
from tests.cli.terminal import Terminal
from tidemill.cli.terminal import Column, fit_table

AT = ("--app", "shop:app")
JOBS = ["id", "queue", "task", "state", "attempt", "created", "note"]


def run_at_width(*arguments: str, columns: int) -> list[str]:
    with Terminal(*arguments, *AT, columns=columns) as terminal:
        assert terminal.code() == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.drawn)
    return [line.rstrip() for line in plain.splitlines()]


@pytest.mark.parametrize("columns", [80, 100, 140])
def test_ids_and_headings_are_never_cut(cli: Cli, columns: int) -> None:
    job = cli.send("a")
    cli("jobs", "cancel", job, "--reason", "an error that goes on and on " * 5, *AT)
    heading, line, *_ = run_at_width("jobs", columns=columns)
    assert line.startswith(f"{job}  ")
    assert line.endswith("…")
    assert max(len(heading), len(line)) <= columns
    words = heading.split()
    assert words == [name for name in JOBS if name in words]
    assert {"id", "task", "state", "note"} <= set(words)
    assert (words == JOBS) == (columns >= 140)


@pytest.mark.parametrize("command", [("queues",), ("top", "--once")], ids=" ".join)
@pytest.mark.parametrize("columns", [80, 100, 140])
def test_the_queue_table_keeps_its_main_columns(cli: Cli, command: tuple[str, ...], columns: int) -> None:
    cli.send("a")
    cli("queues", "pause", "mail", "--reason", "the provider is down " * 9, *AT)
    lines = run_at_width(*command, columns=columns)
    heading = next(line for line in lines if line.startswith("queue "))
    assert {"queue", "ready", "running", "failed", "paused"} <= set(heading.split())
    assert set(heading.split()) <= {*cli(*command, *AT).out.split()}
    line = next(line for line in lines if line.startswith("mail "))
    assert "yes (the p" in line
    assert max(len(heading), len(line)) <= columns


def test_dropped_columns_are_named(cli: Cli) -> None:
    cli.send("a")
    assert "tidemill: no room for created; --json has all" in run_at_width("jobs", columns=80)


COLUMNS = (
    Column("id"),
    Column("task", drop_order=1, truncate="start"),
    Column("note", drop_order=2, truncate="end"),
)


@pytest.mark.parametrize("width", range(5, 90))
def test_a_table_fits(width: int) -> None:
    """In any script and at any width, only an id may exceed the edge."""
    from rich.cells import cell_len

    rows = [("0123456789", "shop.orders.send", "月亮代表我的心 " * 4), ("1", "b", "short\nand two lines")]
    table = fit_table(COLUMNS, rows, width)
    assert all(cell_len(line) <= max(width, 10) for line in (table.heading, *table.lines))
    assert table.lines[0].startswith("0123456789")
    assert table.dropped == [name for name in ("task", "note") if name not in table.heading.split()]
    if "note" in table.heading:
        assert (
            len({line.index(word) for line, word in ((table.heading, "note"), (table.lines[1], "short"))})
            == 1
        )
    if "task" in table.heading:
        assert "send  " in table.lines[0] or table.lines[0].endswith("send")


def test_a_prefix_of_an_id_is_enough(cli: Cli) -> None:
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
def test_an_ambiguous_prefix_changes_nothing(cli: Cli, command: tuple[str, ...]) -> None:
    send = importlib.import_module("shop").send
    for n in range(7):
        send.using(id=f"january-{n}").enqueue_sync("a")
    cli.app().close_sync()
    result = cli(*command, "january-", *AT)
    assert (result.code, result.out) == (2, "")
    newest = ", ".join(f"january-{n} (send, ready)" for n in range(6, 1, -1))
    assert f"'january-' could be {newest} and 2 others; write more of the id" in result.err
    short = cli(*command, "january", *AT)
    assert short.code == 1
    assert "there is no job 'january': the id is wrong, or it was pruned" in short.err
    assert "the beginning of an id is enough with 8 characters or more" in short.err
    assert len(cli("jobs", *AT, "--json").json["jobs"]) == 7


def test_an_existing_id_is_not_a_prefix(cli: Cli) -> None:
    send = importlib.import_module("shop").send
    for name in ("january-1", "january-10"):
        send.using(id=name).enqueue_sync("a")
    cli.app().close_sync()
    assert cli("jobs", "cancel", "january-1", *AT).out == "january-1 cancelled\n"
