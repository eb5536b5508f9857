"""What every template keeps to: nothing a strict policy would refuse, and every address by a function."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tidemill.web

TEMPLATES = sorted((Path(tidemill.web.__file__).parent / "templates").rglob("*.html"))

INLINE = re.compile(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=|javascript:", re.IGNORECASE)
UNESCAPED = re.compile(r"\|\s*safe\b|autoescape\s+false|Markup\(")
FIXED = re.compile(r"""\b(?:href|src|action|formaction|sse-connect)="(?!\{\{|\{%|#)""")


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template(path: Path) -> None:
    text = path.read_text()
    assert INLINE.findall(text) == []
    assert UNESCAPED.findall(text) == []
    assert FIXED.findall(text) == []


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (INLINE, "<script>x()</script>"),
        (INLINE, '<p style="width: 5%">'),
        (INLINE, '<p onclick="x()">'),
        (UNESCAPED, "{{ payload | safe }}"),
        (FIXED, '<a href="/jobs">'),
    ],
)
def test_what_is_forbidden_would_be_found(rule: re.Pattern[str], text: str) -> None:
    assert rule.findall(text) != []
