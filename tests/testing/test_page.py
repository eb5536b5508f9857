"""The page about testing is what happens, and names every call of the kit."""

from __future__ import annotations

from pathlib import Path

from tests.docs.pages import page
from tests.docs.session import play
from tidemill.testing import AsyncKit, Kit, inline

PAGE = page("how-to/test-your-tasks.md")


def test_the_page_is_what_happens(tmp_path: Path) -> None:
    assert play(PAGE, tmp_path) == 1


def test_every_call_is_named() -> None:
    calls = {name for kind in (Kit, AsyncKit, inline) for name in dir(kind) if not name.startswith("_")}
    assert {name for name in calls if f"`{name}(" not in PAGE and f"`{name}`" not in PAGE} == set()
