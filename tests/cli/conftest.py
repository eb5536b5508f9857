from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.support import APPLICATION, Cli


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Cli]:
    """The command line in a folder of its own with an application in it."""
    (tmp_path / "shop.py").write_text(APPLICATION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delenv("TIDEMILL_URL", raising=False)
    yield Cli(capsys)
    sys.modules.pop("shop", None)
