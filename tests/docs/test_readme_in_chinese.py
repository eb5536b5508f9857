"""The README in Chinese says the same, with the same commands and programs (X8)."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT
from tests.docs.session import blocks

ENGLISH, CHINESE = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh-CN.md"))


def commands(text: str) -> list[str]:
    """What is typed: lines that stand apart, without what is said of them."""
    return [line.partition("#")[0].strip() for line in text.splitlines() if re.match(r" {4}\S", line)]


def links(text: str) -> list[str]:
    """Where it leads to, but for each other and for pictures, which are of the same page in its language."""
    found = re.findall(r"(?<!!)\[[^\]]*\]\(([^)]+)\)", text)
    return [link for link in found if not link.startswith("README")]


def named(text: str) -> list[str]:
    """What stands between backticks outside of blocks: commands, names and options."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


def test_the_programs_and_what_they_print_are_the_same_x8() -> None:
    assert list(blocks(CHINESE)) == list(blocks(ENGLISH))


def test_the_commands_are_the_same_x8() -> None:
    assert commands(CHINESE) == commands(ENGLISH)
    assert "make demo" in commands(CHINESE)


def test_it_names_the_same_commands_in_its_sentences_x8() -> None:
    english = {name for name in named(ENGLISH) if " " in name}
    assert english <= set(named(CHINESE))


def test_it_has_the_same_sections_and_leads_to_the_same_pages_x8() -> None:
    assert CHINESE.count("\n## ") == ENGLISH.count("\n## ")
    assert links(CHINESE) == links(ENGLISH)


def test_each_leads_to_the_other() -> None:
    assert "](README.zh-CN.md)" in ENGLISH
    assert "](README.md)" in CHINESE
