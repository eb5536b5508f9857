"""The pages about the applications: their quotes are in the code, and the names in them exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.page_runner import code_blocks
from tests.docs.pages import DOCS, ROOT, page

APPS = ROOT / "src" / "tidemill_apps"
PAGES = sorted((DOCS / "applications").glob("*.md"))
QUOTES = [
    (path.name, body)
    for path in PAGES
    for language, body in code_blocks(path.read_text(encoding="utf-8"))
    if language == "python"
]


def stripped(text: str) -> list[str]:
    """Returns the lines without indentation and without blank lines."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def is_quoted(quote: list[str], lines: list[str]) -> bool:
    """Returns whether the parts between `# …` lines occur in the file, in this order."""
    at = 0
    for part in "\n".join(quote).split("\n# …\n"):
        wanted = part.split("\n")
        places = [n for n in range(at, len(lines) - len(wanted) + 1) if lines[n : n + len(wanted)] == wanted]
        if not places:
            return False
        at = places[0] + len(wanted)
    return True


@pytest.mark.parametrize(("name", "body"), QUOTES, ids=lambda value: value.partition("\n")[0])
def test_quoted_code_exists_in_the_source(name: str, body: str) -> None:
    first, _, rest = body.partition("\n")
    file = APPS / first.removeprefix("# ")
    assert file.is_file(), f"{name} quotes {first}, which is not there"
    assert is_quoted(stripped(rest), stripped(file.read_text(encoding="utf-8"))), (
        f"{name}: {file} has it otherwise"
    )


def test_both_applications_are_shown_with_their_code() -> None:
    quoted = {body.partition("/")[0].removeprefix("# ") for _, body in QUOTES}
    assert quoted >= {"music", "articles", "podcasts"}


def test_every_file_that_is_named_is_there() -> None:
    for path in PAGES:
        for file in re.findall(
            r"`((?:music|articles|podcasts|common)/\w+\.py)`", path.read_text(encoding="utf-8")
        ):
            assert (APPS / file).is_file(), f"{path.name} names {file}"


def test_quotes_are_compared_part_by_part(tmp_path: Path) -> None:
    lines = stripped("def one():\n    return 1\n\ndef two():\n    return 2\n")
    assert is_quoted(["def one():", "# …", "return 2"], lines)
    assert not is_quoted(["def two():", "# …", "return 1"], lines)
    assert not is_quoted(["def one():", "return 2"], lines)


@pytest.mark.parametrize("name", ["README", "music", "articles", "podcasts"])
def test_they_lead_to_how_it_is_run(name: str) -> None:
    assert "tidemill up" in page(f"applications/{name}.md")
