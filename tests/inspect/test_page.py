"""The page about inspecting is what happens, and knows every code and every call."""

from __future__ import annotations

from pathlib import Path

from tests.docs.pages import first_column, page, section
from tests.docs.session import play
from tidemill import Inspector
from tidemill.inspect.causes import Code

PAGE = page("how-to/inspect-jobs.md")


def test_the_page_is_what_happens(tmp_path: Path) -> None:
    assert play(PAGE, tmp_path) == 6


def test_every_code_is_documented() -> None:
    assert first_column(section(PAGE, "Ask why a job waits")) == [code.value for code in Code]


def test_every_call_is_mentioned() -> None:
    calls = {name for name in vars(Inspector) if not name.startswith("_")}
    assert {name for name in calls if f"{name}(" not in PAGE and f"`{name}`" not in PAGE} == set()
