"""Parses documentation pages."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def section(text: str, title: str) -> str:
    """Returns the text under a `## title`, up to the next heading of that level."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"there is no section {title!r}"
    return found[1]


def rows(text: str) -> list[list[str]]:
    """Returns the cells of every table row, without headings and rules."""
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    rules = {index for index, row in enumerate(cells) if all(set(cell) <= {"-"} for cell in row)}
    return [row for index, row in enumerate(cells) if not {index, index + 1} & rules]


def first_column(text: str) -> list[str]:
    return [row[0].strip("`") for row in rows(text)]


def every_page() -> list[Path]:
    return sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
