"""The page about inspecting jobs lists every code and every call, and its examples run."""

from __future__ import annotations

from pathlib import Path

from tests.docs.page_runner import run_page
from tests.docs.pages import first_column, page, section
from tidemill import Inspector
from tidemill.inspect.causes import CauseCode

PAGE = page("how-to/inspect-jobs.md")


def test_the_examples_of_the_page_run(tmp_path: Path) -> None:
    assert run_page(PAGE, tmp_path) == 6


def test_every_code_is_documented() -> None:
    assert first_column(section(PAGE, "Ask why a job waits")) == [code.value for code in CauseCode]


def test_every_call_is_mentioned() -> None:
    calls = {name for name in vars(Inspector) if not name.startswith("_")}
    assert {name for name in calls if f"{name}(" not in PAGE and f"`{name}`" not in PAGE} == set()
