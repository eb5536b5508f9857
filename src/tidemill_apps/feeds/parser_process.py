"""Parses feed documents in child processes, so that a hostile document cannot block or kill the worker."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import msgspec

from tidemill_apps.feeds.documents import FeedDocument, FeedLink


class ParserLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of each document, and the number of child processes."""

    seconds: float = 10.0
    max_memory_bytes: int = 512 * 1024 * 1024
    processes: int = 1


class FeedParser:
    """Parses documents in child processes. Use it as an async context manager, one for each event loop."""

    def __init__(self, limits: ParserLimits | None = None) -> None:
        self._limits = limits or ParserLimits()

    async def __aenter__(self) -> Self:
        raise NotImplementedError

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        raise NotImplementedError

    async def parse(self, body: bytes, content_type: str | None, url: str) -> FeedDocument:
        """Returns the feed in a document. Raises UnreadableFeed if it has none or exceeds a limit."""
        raise NotImplementedError

    async def find_links(self, body: bytes, content_type: str | None, url: str) -> list[FeedLink]:
        """Returns the feeds that an HTML page names. Raises UnreadableFeed if the page exceeds a limit."""
        raise NotImplementedError
