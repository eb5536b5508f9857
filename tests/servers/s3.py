"""A private S3 server: SeaweedFS from a wheel, on loopback."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers.program import HOST, Program, free_port

BUCKET = "tests"
ACCESS_KEY, SECRET_KEY = "access", "secret"


class S3Server:
    """The server and one bucket. `url` is the endpoint."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tidemill-s3-"))
        self.port = free_port()
        self._program: Program | None = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self) -> None:
        ports = [f"-{name}={free_port()}" for name in PORT_OPTIONS]
        words = [program(), "mini", f"-dir={self._folder}", f"-ip={HOST}", f"-ip.bind={HOST}", *ports]
        options = [f"-s3.port={self.port}", f"-bucket={BUCKET}", "-webdav=false"]
        options += ["-admin.ui=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
        self._program = Program([*words, *options], log=self._folder / "log", environment=keys)
        self._program.answers(self._has_bucket, seconds=60)

    def stop(self) -> None:
        if self._program is not None:
            self._program.end()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _has_bucket(self) -> bool:
        """Returns whether the server knows the bucket. Without a signature it refuses a known one."""
        try:
            urllib.request.urlopen(f"{self.url}/{BUCKET}", timeout=2)  # noqa: S310 - a private server
        except urllib.error.HTTPError as error:
            return error.code == 403
        return True


PORT_OPTIONS = (
    *("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc"),
    *("s3.port.grpc", "admin.port", "admin.port.grpc"),
)


def program() -> str:
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("weed")
    if found is None:
        raise RuntimeError("no S3 server; run `make setup`")
    return found
