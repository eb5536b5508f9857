"""The page about the simulated providers names every dialect and every option."""

from __future__ import annotations

from tests.docs.pages import page, rows
from tidemill.testing.providers import DIALECTS, Faults, Ledger, Options
from tidemill.testing.providers.__main__ import main

PAGE = page("how-to/simulate-a-provider.md")
NAMED = {
    row[0].strip("`"): row[1] for row in rows(PAGE.partition("## Answers that are wrong")[0]) if len(row) == 2
}


def test_every_dialect_and_every_option_has_a_row() -> None:
    options = {option for parameter in main.params for option in parameter.opts} - {"--dialect"}
    assert set(NAMED) == set(DIALECTS) | options


def test_every_behaviour_that_can_be_set_is_named() -> None:
    assert {name for name in Options.__struct_fields__ if f"`{name}`" not in NAMED["--options"]} == set()


def test_every_fault_has_its_place() -> None:
    faults = PAGE.partition("## Answers that are wrong")[2]
    assert {name for name in Faults.__struct_fields__ if f"`{name}`" not in faults} == set()


def test_what_it_says_of_the_books_is_there() -> None:
    for name in ("arrivals", "refusals", "bills", "unknown"):
        assert f"`{name}`" in PAGE
        assert hasattr(Ledger(), name)
