"""A certificate for the loopback address, created on demand in a temporary folder."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.servers.proxy import Proxy

NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1"


class Certificate:
    """A self-signed certificate: a client trusts it if `path` is its authority."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "certificate.pem"
        self.key = folder / "key.pem"
        kind = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1"
        words = f"req -x509 -nodes -days 2 {kind} -subj /CN=localhost -addext {NAMES}".split()
        files = ["-keyout", str(self.key), "-out", str(self.path)]
        subprocess.run(["openssl", *words, *files], check=True, capture_output=True)

    def context(self) -> ssl.SSLContext:
        """Returns the TLS context of the server."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.path, self.key)
        return context


@dataclass(frozen=True)
class Tls:
    """A TLS server, and the file of its certificate authority."""

    url: str
    authority: Path
    proxy: Proxy
