"""The documentation site builds without a warning, and works without a network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

LOADING_LINKS = {"stylesheet", "icon", "preload", "preconnect", "prefetch", "dns-prefetch", "modulepreload"}
LOADING_ATTRIBUTES = {"src", "srcset", "data", "poster"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr, built.stderr
    return folder


class Loads(HTMLParser):
    """Collects the URLs that a browser fetches to show the page; links are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "link" and LOADING_LINKS & set(given.get("rel", "").split()):
            self.found.append(given["href"])
        self.found += [given[name] for name in LOADING_ATTRIBUTES & given.keys()]


def loads(page: str) -> list[str]:
    parser = Loads()
    parser.feed(page)
    return parser.found


def elsewhere(address: str) -> bool:
    return bool(re.match(r"(\w+:)?//", address)) and not address.startswith("data:")


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert pages
    for page in pages:
        away = [address for address in loads(page.read_text(encoding="utf-8")) if elsewhere(address)]
        assert not away, f"{page.relative_to(site)} loads {away}"


def test_no_stylesheet_or_drawing_loads_anything_from_another_host(site: Path) -> None:
    for path in [*site.rglob("*.css"), *site.rglob("*.svg")]:
        text = path.read_text(encoding="utf-8")
        found = re.findall(r"url\(\s*[\"']?([^\"')]+)|@import\s+[\"']([^\"']+)|href=\"([^\"]+)", text)
        away = [address for address in (a or b or c for a, b, c in found) if elsewhere(address)]
        assert not away, f"{path.relative_to(site)} loads {away}"


def test_no_page_makes_the_theme_fetch_mermaid(site: Path) -> None:
    """Mermaid would come from another host; our drawings are SVG files."""
    for page in site.rglob("*.html"):
        assert 'class="mermaid"' not in page.read_text(encoding="utf-8")


def test_addresses_of_other_hosts_are_detected() -> None:
    page = '<link rel="stylesheet" href="//a.example/x.css"><script src="https://b.example/y.js"></script>'
    assert [address for address in loads(page) if elsewhere(address)] == [
        "//a.example/x.css",
        "https://b.example/y.js",
    ]
    assert not elsewhere("assets/x.css")
