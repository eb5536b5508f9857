from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.cli.support import APPLICATION, Cli


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Cli]:
    """Returns a command line in a temporary folder with an application."""
    (tmp_path / "shop.py").write_text(APPLICATION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in [*os.environ]:
        if name.startswith("TIDEMILL_") or name in ("REDIS_URL", "DATABASE_URL"):
            monkeypatch.delenv(name)
    monkeypatch.delitem(sys.modules, "shop", raising=False)  # it was imported from another folder
    before = set(sys.modules)
    yield Cli(capsys)
    for name in set(sys.modules) - before:
        if str(tmp_path) in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]
    structlog.reset_defaults()
