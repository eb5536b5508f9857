"""Prepares the libraries of the applications."""

from __future__ import annotations

import gc
import warnings

import pytest
from qdrant_client.local.persistence import CollectionPersistence


@pytest.fixture(scope="session", autouse=True)
def qdrant_thread_check(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Makes qdrant-client check once per process whether SQLite connections may be shared by threads. The
    check leaves a connection open, which Python 3.13 reports in the test that runs at that moment."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        CollectionPersistence(str(tmp_path_factory.mktemp("qdrant"))).close()
        gc.collect()
