"""Storage for the episodes: a folder, and a bucket of a real S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.servers.s3 import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server
from tidemill_apps.common.object_storage import StorageSettings

_numbers = count(1)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def bucket(s3_server: S3Server) -> StorageSettings:
    """A prefix of this test only."""
    return StorageSettings(
        url=f"s3://{BUCKET}/{next(_numbers)}",
        endpoint=s3_server.url,
        access_key=ACCESS_KEY,
        secret_key=SECRET_KEY,
    )


@pytest.fixture(params=["folder", "bucket"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> StorageSettings:
    if request.param == "folder":
        return StorageSettings(url=str(tmp_path / "files"))
    found: StorageSettings = request.getfixturevalue("bucket")
    return found
