"""A fake music server with configured answers."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tidemill_apps.music.tables import Track


class Listing:
    """The pages of songs. At a page without songs, the server becomes unavailable."""

    url = "http://listing"

    def __init__(self, *pages: list[Track], modified: int = 1) -> None:
        self.listed, self.modified, self.reads = list(pages), modified, 0

    async def last_modified(self) -> int:
        return self.modified

    async def pages(self) -> AsyncIterator[list[Track]]:
        self.reads += 1
        for page in self.listed:
            if not page:
                raise ConnectionError("the server went away")
            yield page
