"""The stores of these tests, each in virtual time. A server answers a thousand times slower than memory, and
a night has many thousand questions: what takes long runs on servers only in `make chaos`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.quotas.fleet import MakeStore
from tests.quotas.stores import PERSISTENT, STORES, made

AT_LENGTH = STORES if "TIDEMILL_CHAOS_SECONDS" in os.environ else STORES[:2]


@pytest.fixture(params=STORES)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeStore]:
    """Every store in turn."""
    yield from _made(request, tmp_path)


@pytest.fixture(params=AT_LENGTH)
def make_at_length(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeStore]:
    """Every store in `make chaos`, else those without a server."""
    yield from _made(request, tmp_path)


@pytest.fixture(params=PERSISTENT)
def make_persistent(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeStore]:
    """Every one that keeps its jobs somewhere else than in this process."""
    yield from _made(request, tmp_path)


def _made(request: pytest.FixtureRequest, folder: Path) -> Iterator[MakeStore]:
    with made(request.param, folder, lambda name: request.getfixturevalue(f"{name}_url")) as make_store:
        yield make_store
