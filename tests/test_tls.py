"""One TLS context for many connections, and a new one after a file changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.certificates import Certificate
from tidemill.errors import ConfigurationError
from tidemill.tls import TlsFiles, client_context


def test_a_context_is_shared() -> None:
    assert client_context() is client_context()
    assert client_context() is not client_context(TlsFiles(verify=False))


def test_a_renewed_certificate_is_loaded_without_a_restart(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    path = tmp_path / "ca.pem"
    path.write_bytes(Certificate(tmp_path / "old").path.read_bytes())
    files = TlsFiles(ca=str(path))
    before = client_context(files)
    assert client_context(files) is before
    path.write_bytes(Certificate(tmp_path / "new").path.read_bytes())
    after = client_context(files)
    assert after is not before
    assert after.get_ca_certs(binary_form=True) != before.get_ca_certs(binary_form=True)


def test_a_renewed_system_store_is_loaded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = client_context()
    monkeypatch.setenv("SSL_CERT_FILE", str(Certificate(tmp_path).path))
    assert client_context() is not before


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"url: ca: .*none\.pem cannot be read as a PEM file"):
        client_context(TlsFiles(ca=str(tmp_path / "none.pem")), source="url")


@pytest.mark.parametrize("change", ["half", "none"])
def test_a_file_that_is_being_replaced_keeps_the_old_context(tmp_path: Path, change: str) -> None:
    """A worker reconnects at any moment. The next connection reads the file again."""
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    path = tmp_path / "ca.pem"
    path.write_bytes(Certificate(tmp_path / "old").path.read_bytes())
    files = TlsFiles(ca=str(path))
    before = client_context(files)
    renewed = Certificate(tmp_path / "new").path.read_bytes()
    if change == "half":
        path.write_bytes(renewed[: len(renewed) // 2])
    else:
        path.unlink()
    assert client_context(files) is before
    path.write_bytes(renewed)
    after = client_context(files)
    assert after.get_ca_certs(binary_form=True) != before.get_ca_certs(binary_form=True)


def test_a_certificate_without_its_new_key_keeps_the_old_context(tmp_path: Path) -> None:
    """Two files are never replaced at the same moment."""
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    old, new = Certificate(tmp_path / "old"), Certificate(tmp_path / "new")
    files = TlsFiles(cert=str(old.path), key=str(old.key))
    before = client_context(files)
    old.path.write_bytes(new.path.read_bytes())
    assert client_context(files) is before
    old.key.write_bytes(new.key.read_bytes())
    assert client_context(files) is not before
