"""Fixtures of the music application: a music server, and a library on either database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.apps.music.library_fixtures import open_library
from tests.apps.music.subsonic_server import MusicServer
from tidemill_apps.music.library import Library


@pytest.fixture(scope="session")
def subsonic() -> Iterator[MusicServer]:
    """A real Subsonic server. A test first sets its number of songs with `hold`."""
    with MusicServer() as server:
        yield server


@pytest.fixture
async def library(tmp_path: Path) -> AsyncIterator[Library]:
    async with open_library(f"sqlite:///{tmp_path}/music.db") as library:
        yield library


@pytest.fixture(params=["sqlite", "postgres"])
async def either(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Library]:
    """The same library on both databases."""
    url = f"sqlite:///{tmp_path}/music.db"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
    async with open_library(url) as library:
        yield library
