"""The guides about tests, the simulator and writing a store."""

from __future__ import annotations

from pathlib import Path

from tests.docs import terminal
from tests.docs.page_runner import run_page, write_files
from tests.docs.pages import page, rows
from tidemill.testing import AsyncKit, Kit, inline
from tidemill.testing.simulator import DIALECTS, ReplyFaults, RequestLog, SimulatorOptions
from tidemill.testing.simulator.__main__ import main

SIMULATOR_PAGE = page("how-to/simulate-a-provider.md")
NAMED = {
    row[0].strip("`"): row[1]
    for row in rows(SIMULATOR_PAGE.partition("## Answers that are wrong")[0])
    if len(row) == 2
}


def test_every_dialect_and_every_option_has_a_row() -> None:
    options = {option for parameter in main.params for option in parameter.opts} - {"--dialect"}
    assert set(NAMED) == set(DIALECTS) | options


def test_every_behaviour_that_can_be_set_is_named() -> None:
    assert {
        name for name in SimulatorOptions.__struct_fields__ if f"`{name}`" not in NAMED["--options"]
    } == set()


def test_every_fault_has_its_place() -> None:
    faults = SIMULATOR_PAGE.partition("## Answers that are wrong")[2]
    assert {name for name in ReplyFaults.__struct_fields__ if f"`{name}`" not in faults} == set()


def test_the_documented_fields_of_the_request_log_exist() -> None:
    for name in ("arrivals", "refusals", "bills", "unknown"):
        assert f"`{name}`" in SIMULATOR_PAGE
        assert hasattr(RequestLog(), name)


MYSTORE = """
from tidemill.stores.memory import MemoryStore


class MyStore(MemoryStore):
    def __init__(self, path, *, clock, entropy):
        super().__init__(clock=clock, entropy=entropy)

    write_arrival = MemoryStore.arrive
"""


def test_the_suite_is_taken_as_the_page_says(tmp_path: Path) -> None:
    write_files(page("how-to/write-a-store.md"), tmp_path)
    (tmp_path / "mystore.py").write_text(MYSTORE, encoding="utf-8")
    code, printed = terminal.run("python -m pytest -q -p no:cacheprovider -k 'j1 or j80'", tmp_path)
    assert code == 0, printed
    assert " passed" in printed


TESTING_PAGE = page("how-to/test-your-tasks.md")


def test_the_page_is_what_happens(tmp_path: Path) -> None:
    assert run_page(TESTING_PAGE, tmp_path) == 1


def test_every_call_is_named() -> None:
    calls = {name for kind in (Kit, AsyncKit, inline) for name in dir(kind) if not name.startswith("_")}
    assert {
        name for name in calls if f"`{name}(" not in TESTING_PAGE and f"`{name}`" not in TESTING_PAGE
    } == set()
