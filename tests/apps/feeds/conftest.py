"""Fixtures of the feeds application: servers on loopback, a fetcher and a parser."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.apps.feeds.raw_server import CanaryListener, RawServer
from tidemill_apps.feeds.parser_process import FeedParser


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    """A server whose answers a test writes byte by byte."""
    async with RawServer() as server:
        yield server


@pytest.fixture
async def canary() -> AsyncIterator[CanaryListener]:
    """A listener on loopback that must not be called."""
    async with CanaryListener() as canary:
        yield canary


@pytest.fixture
async def parser() -> AsyncIterator[FeedParser]:
    async with FeedParser() as parser:
        yield parser
