"""TLS options of the URL, and the error for an untrusted certificate (S1)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.servers.certificates import Certificate
from tests.servers.postgres import UNPRIVILEGED, Postgres
from tests.stores.postgres.test_open import opening
from tidemill.errors import ConfigurationError
from tidemill.stores.postgres import PostgresStore

WHO = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def authority(folder: Path) -> Certificate:
    return Certificate(folder)


@pytest.fixture(scope="module")
def url(authority: Certificate, folder: Path) -> Iterator[str]:
    """Returns the URL of a server with TLS. The server reads its key as its own user, and only if no other
    user can."""
    if UNPRIVILEGED is not None:
        folder.chmod(0o755)
        for file in folder.iterdir():
            shutil.chown(file, UNPRIVILEGED)
            file.chmod(0o600)
    key = str(folder / "key.pem")
    with Postgres(ssl="on", ssl_cert_file=str(authority.path), ssl_key_file=key) as server:
        yield server.url


@pytest.mark.parametrize("mode", ["require", "verify-full"])
async def test_a_private_authority(url: str, authority: Certificate, mode: str) -> None:
    trusted = f"&sslrootcert={authority.path}" if mode == "verify-full" else ""
    store = await PostgresStore(f"{url}?sslmode={mode}{trusted}").open()
    assert [row["ssl"] for row in await store._connection.fetch(WHO)] == [True]
    await store.close()


async def test_another_authority(url: str, tmp_path: Path) -> None:
    other = Certificate(tmp_path)
    error = await opening(f"{url}?sslmode=verify-full&sslrootcert={other.path}")
    assert isinstance(error, ConfigurationError)
    assert "its certificate is not trusted (self-signed certificate); name the file" in str(error)


async def test_no_authority(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    error = await opening(f"{url}?sslmode=verify-full")
    assert isinstance(error, ConfigurationError)
    assert "root.crt" in str(error)
    assert "sslrootcert= names the authority's file" in str(error)


async def test_an_unknown_sslmode_is_refused(url: str) -> None:
    error = await opening(f"{url}?sslmode=verify")
    assert isinstance(error, ConfigurationError)
    assert "must be one of: disable" in str(error)
