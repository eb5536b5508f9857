"""Runs the pages: writes their files, runs their commands, and compares their output."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.docs.page_runner import code_blocks, run_page
from tests.docs.pages import DOCS, ROOT, every_page

PLAYED = [
    "README.md",
    "docs/tutorial/first-job.md",
    "docs/how-to/alerts.md",
    "docs/how-to/batches.md",
    "docs/how-to/deploy.md",
    "docs/how-to/flows.md",
    "docs/how-to/idempotent-handlers.md",
    "docs/how-to/limit-concurrency.md",
    "docs/how-to/logs-and-events.md",
    "docs/how-to/long-jobs.md",
    "docs/how-to/metrics-and-tracing.md",
    "docs/how-to/pay-once.md",
    "docs/how-to/plan-a-backlog.md",
    "docs/how-to/quotas.md",
    "docs/how-to/retry-and-give-up.md",
    "docs/how-to/answer-requests.md",
    "docs/how-to/dependencies.md",
    "docs/how-to/periodic-functions.md",
    "docs/how-to/schedules.md",
    "docs/how-to/simulate-a-provider.md",
    "docs/how-to/unique-jobs.md",
]


@pytest.mark.parametrize("page", PLAYED)
def test_the_page_is_what_happens(page: str, tmp_path: Path) -> None:
    assert run_page((ROOT / page).read_text(encoding="utf-8"), tmp_path) > 0


WITH_PROGRAMS = [path for path in every_page() if path.name != "api.md"]
"""The API page has signatures, which are no programs."""


@pytest.mark.parametrize("path", WITH_PROGRAMS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_python_block_can_be_read(path: Path) -> None:
    for language, body in code_blocks(path.read_text(encoding="utf-8")):
        if language == "python":
            ast.parse(body)


@pytest.mark.parametrize("path", sorted((DOCS / "how-to").glob("*.md")), ids=lambda path: path.name)
def test_every_how_to_page_is_run_by_some_test(path: Path) -> None:
    """A page is run here, or read by another test; a mere mention is not enough."""
    read = re.compile(rf'page\("how-to/{path.stem}\.md"\)')
    one_of = re.compile(rf'"{path.stem}".*page\(f"how-to/{{name}}\.md"\)', re.DOTALL)
    tests = [test.read_text(encoding="utf-8") for test in (ROOT / "tests").rglob("*.py")]
    here = str(path.relative_to(ROOT)) in PLAYED
    assert here or any(read.search(text) or one_of.search(text) for text in tests)
