"""The stores of the quota tests, each in virtual time.

A server is a thousand times slower than memory, and a simulated night needs many thousand requests. So
long tests run on servers only in `make chaos`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.quotas.fleet import MakeStore
from tests.quotas.virtual_stores import PERSISTENT, STORES, create_store

AT_LENGTH = STORES if "TIDEMILL_CHAOS_SECONDS" in os.environ else STORES[:2]


@pytest.fixture(params=STORES)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeStore]:
    """Every store in turn."""
    yield from _made(request, tmp_path)


@pytest.fixture(params=AT_LENGTH)
def make_at_length(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeStore]:
    """Every store in `make chaos`, otherwise the stores without a server."""
    yield from _made(request, tmp_path)


@pytest.fixture(params=PERSISTENT)
def make_persistent(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeStore]:
    """Every store except the memory store."""
    yield from _made(request, tmp_path)


def _made(request: pytest.FixtureRequest, folder: Path) -> Iterator[MakeStore]:
    with create_store(
        request.param, folder, lambda name: request.getfixturevalue(f"{name}_url")
    ) as make_store:
        yield make_store
