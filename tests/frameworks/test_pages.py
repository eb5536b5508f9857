"""The pages about frameworks are what happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import page
from tests.docs.session import play


@pytest.mark.parametrize("name", ["django", "fastapi", "flask"])
def test_the_page_is_what_happens(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE", raising=False)  # of the project of the other tests
    assert play(page(f"how-to/{name}.md"), tmp_path) > 0
