"""The package maps are complete: CONTRIBUTING, the architecture page and its drawing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(path.parent.name for path in (ROOT / "src/tidemill").glob("*/__init__.py"))
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
DRAWING = ROOT / "docs/explanation/packages.svg"


@pytest.mark.parametrize("package", PACKAGES)
def test_the_maps_list_every_package(package: str) -> None:
    assert re.search(rf"^    {package}/ ", CONTRIBUTING, re.MULTILINE)
    assert re.search(rf"^\| `{package}` \|", ARCHITECTURE, re.MULTILINE)


def test_the_maps_list_no_package_that_is_gone() -> None:
    assert set(re.findall(r"^    ([a-z_]+)/ ", CONTRIBUTING, re.MULTILINE)) == set(PACKAGES)
    assert set(re.findall(r"^\| `([a-z_]+)` \|", ARCHITECTURE, re.MULTILINE)) == set(PACKAGES)


def test_the_drawing_shows_the_imports_of_today() -> None:
    code = "import runpy, sys; sys.stdout.write(runpy.run_path('scripts/package_drawing.py')['drawing']())"
    drawn = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert drawn == DRAWING.read_text(encoding="utf-8"), "run python scripts/package_drawing.py"


def test_the_page_shows_the_drawing_and_five_walks() -> None:
    assert "](packages.svg)" in ARCHITECTURE
    for title in ("Enqueue", "Claim, run, settle", "A metered claim", "A flow", "A page of the dashboard"):
        assert f"\n## Walk: {title}\n" in ARCHITECTURE
