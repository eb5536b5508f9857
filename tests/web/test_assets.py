"""Templates contain nothing that the content security policy refuses, and build every address by a
function."""

from __future__ import annotations

import re
import tomllib
from hashlib import sha256
from pathlib import Path

import pytest

import tidemill.web
from tidemill.web.template_functions import STATIC_FOLDER

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
def test_forbidden_markup_is_found(rule: re.Pattern[str], text: str) -> None:
    assert rule.findall(text) != []


VENDOR = STATIC_FOLDER / "vendor"
VERSIONS = tomllib.loads((VENDOR / "VERSIONS.toml").read_text())


@pytest.mark.parametrize("name", sorted(VERSIONS))
def test_vendored_files_are_unchanged(name: str) -> None:
    entry = VERSIONS[name]
    assert sha256((VENDOR / name).read_bytes()).hexdigest() == entry["sha256"]
    assert entry["package"]
    assert entry["version"]
    licence = (VENDOR / entry["text"]).read_text()
    assert {"0BSD": "WITH OR WITHOUT FEE", "MIT": "PERMISSION IS HEREBY GRANTED"}[
        entry["licence"]
    ] in " ".join(licence.upper().split())


def test_every_vendored_file_is_documented() -> None:
    documented = {*VERSIONS, *(entry["text"] for entry in VERSIONS.values()), "VERSIONS.toml"}
    assert {path.name for path in VENDOR.iterdir()} == documented
