"""Files in a folder or in a bucket, through obstore. A file is visible only when it is complete."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import obstore
from obstore.exceptions import BaseError, NotFoundError
from obstore.store import LocalStore, S3Store

from tidemill import ConfigurationError, DependencyUnavailable, Secret, StoreUnavailable
from tidemill_apps.common.model_clients import HttpUrl
from tidemill_apps.common.settings import EnvironmentSettings


class StorageSettings(EnvironmentSettings, frozen=True, kw_only=True):
    """The location of files. `url` is a folder or s3://bucket/prefix; the other settings are for S3."""

    url: str = "media-files"
    endpoint: HttpUrl = ""
    region: str = "us-east-1"
    access_key: Annotated[str, Secret] = ""
    secret_key: Annotated[str, Secret] = ""


UNAVAILABLE_RETRY_SECONDS = 15.0
"""Seconds until a job whose handler met an unavailable storage runs again."""


class StorageUnavailable(DependencyUnavailable, StoreUnavailable):
    """The folder or bucket cannot be used. A route answers 503 with the message. A job whose handler raises
    it waits for the storage, which costs no attempt."""

    def __init__(self, problem: str) -> None:
        super().__init__("the object storage", problem, retry_in=UNAVAILABLE_RETRY_SECONDS)

    def __str__(self) -> str:
        return self.problem


def open_store(settings: StorageSettings, prefix: str) -> LocalStore | S3Store:
    """Opens the folder or bucket. It makes no request yet. `prefix` begins the variables of the settings."""
    url, endpoint = settings.url, settings.endpoint
    if not url.startswith("s3://"):
        folder = Path(url.removeprefix("file://")).resolve()
        with _explain(f"{prefix}URL", url):
            return LocalStore(prefix=folder, automatic_cleanup=True, mkdir=True)
    if not (settings.access_key and settings.secret_key):
        raise ConfigurationError(
            f"{prefix}ACCESS_KEY: must be set, with {prefix}SECRET_KEY, for {url}; set both, or set "
            f"{prefix}URL to a folder"
        )
    return S3Store.from_url(
        url,
        endpoint=endpoint or f"https://s3.{settings.region}.amazonaws.com",
        region=settings.region,
        access_key_id=settings.access_key,
        secret_access_key=settings.secret_key,
        virtual_hosted_style_request=False,
        client_options={"allow_http": endpoint.startswith("http:"), "timeout": "60s"},
        retry_config={"max_retries": 2},
    )


class ObjectStorage:
    def __init__(self, settings: StorageSettings, prefix: str) -> None:
        self._url, self._variable = settings.url, f"{prefix}URL"
        self.store = open_store(settings, prefix)

    async def put(self, key: str, content: bytes | Path) -> None:
        """Writes a file. Readers see either no file or the whole file."""
        with _explain(self._variable, self._url):
            await obstore.put_async(self.store, key, content)

    async def get(self, key: str) -> bytes | None:
        with _explain(self._variable, self._url):
            try:
                return bytes(await (await obstore.get_async(self.store, key)).bytes_async())
            except (NotFoundError, FileNotFoundError):
                return None

    async def size(self, key: str) -> int | None:
        """Returns the size in bytes, None if there is no such file."""
        with _explain(self._variable, self._url):
            try:
                return (await obstore.head_async(self.store, key))["size"]
            except (NotFoundError, FileNotFoundError):
                return None

    async def delete(self, key: str) -> None:
        with _explain(self._variable, self._url):
            try:
                await obstore.delete_async(self.store, key)
            except (NotFoundError, FileNotFoundError):
                return


@contextmanager
def _explain(variable: str, url: str) -> Iterator[None]:
    try:
        yield
    except (BaseError, OSError) as error:
        said = str(error).partition("\n")[0][:300]
        raise StorageUnavailable(
            f"{variable}: {url} cannot be used: {said}; is it there, and may it be written?"
        ) from error
