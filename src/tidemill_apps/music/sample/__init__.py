"""Songs to begin with, for who has no music server at hand: half of them Chinese."""

from __future__ import annotations

import tomllib
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path

from tidemill_apps.music.songs import Track


@cache
def tracks() -> tuple[Track, ...]:
    text = Path(__file__).with_name("songs.toml").read_text(encoding="utf-8")
    listed = tomllib.loads(text)["songs"]
    return tuple(
        Track(id=f"sample-{number:03}", title=title, artist=artist, genre=genre)
        for number, (title, artist, genre) in enumerate(listed, start=1)
    )


class Sample:
    """A source of songs as a music server is one, which never changes."""

    url = "the sample"

    async def last_modified(self) -> int:
        return len(tracks())

    async def pages(self) -> AsyncIterator[list[Track]]:
        yield list(tracks())
