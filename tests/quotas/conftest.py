from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.quotas.fleet import MakeStore
from tests.quotas.stores import PERSISTENT, STORES, made


@pytest.fixture(params=STORES)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeStore]:
    """Every store in turn."""
    with made(request.param, tmp_path, lambda name: request.getfixturevalue(f"{name}_url")) as make_store:
        yield make_store


@pytest.fixture(params=PERSISTENT)
def make_persistent(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeStore]:
    """Every one that keeps its jobs somewhere else than in this process."""
    with made(request.param, tmp_path, lambda name: request.getfixturevalue(f"{name}_url")) as make_store:
        yield make_store
