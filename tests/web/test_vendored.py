"""Scripts of others that are served with the pages: unchanged, with their version and their licence."""

from __future__ import annotations

import tomllib
from hashlib import sha256

import pytest

from tidemill.web.drawing import STATIC

VENDOR = STATIC / "vendor"
VERSIONS = tomllib.loads((VENDOR / "VERSIONS.toml").read_text())


@pytest.mark.parametrize("name", sorted(VERSIONS))
def test_it_is_what_was_taken(name: str) -> None:
    said = VERSIONS[name]
    assert sha256((VENDOR / name).read_bytes()).hexdigest() == said["sha256"]
    assert said["package"]
    assert said["version"]
    licence = (VENDOR / said["text"]).read_text()
    assert {"0BSD": "WITH OR WITHOUT FEE", "MIT": "PERMISSION IS HEREBY GRANTED"}[
        said["licence"]
    ] in " ".join(licence.upper().split())


def test_every_file_is_told_of() -> None:
    told = {*VERSIONS, *(said["text"] for said in VERSIONS.values()), "VERSIONS.toml"}
    assert {path.name for path in VENDOR.iterdir()} == told
