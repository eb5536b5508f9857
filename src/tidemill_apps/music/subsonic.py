"""A client of a Subsonic-compatible server (Navidrome and others): what there is, page by page.

Every problem is one sentence that says which server, what is wrong and what to do.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import msgspec

from tidemill_apps.music.songs import Track

VERSION, CLIENT = "1.16.1", "tidemill"
PAGE = 500
LATER_THAN_ANY_SCAN = 2**53
"""In milliseconds. Asked whether something changed since then, a server says when the last change was and
nothing else."""
WRONG_PASSWORD, TOKENS_NOT_TAKEN, PARAMETER_MISSING = 40, (41, 42, 43), 10


class SubsonicError(Exception):
    """The music server could not be asked, or does not answer as one."""


class Refused(SubsonicError):
    """It answered, and would not."""


class _Error(msgspec.Struct):
    code: int = 0
    message: str = ""


class _Found(msgspec.Struct):
    song: list[Track] = []


class _Indexes(msgspec.Struct):
    last_modified: int = msgspec.field(default=0, name="lastModified")


class _ScanStatus(msgspec.Struct):
    scanning: bool = False


class _Answer(msgspec.Struct):
    status: str
    version: str
    error: _Error | None = None
    found: _Found | None = msgspec.field(default=None, name="searchResult3")
    indexes: _Indexes | None = None
    scan: _ScanStatus | None = msgspec.field(default=None, name="scanStatus")


class _Envelope(msgspec.Struct):
    answer: _Answer = msgspec.field(name="subsonic-response")


class Subsonic:
    """`salt` draws what the password is hashed with, anew for every call. With `token=False` the password
    itself is sent, as servers from before 1.13 and those that store only a hash of it want it: over https
    only, unless the server is on this machine."""

    def __init__(
        self,
        url: str,
        user: str,
        password: str,
        client: httpx2.AsyncClient,
        salt: Callable[[], str],
        *,
        token: bool = True,
    ) -> None:
        self.url = url.rstrip("/")
        self._user, self._password, self._token = user, password, token
        self._client, self._salt = client, salt

    async def ping(self) -> None:
        """Nothing, if the server is one, is there, and takes the password."""
        await self._ask("ping")

    async def last_modified(self) -> int:
        """When the collection changed last, in milliseconds; 0 if the server does not say, or is at it."""
        answer = await self._ask("getIndexes", ifModifiedSince=LATER_THAN_ANY_SCAN)
        if answer.indexes is None or await self._is_scanning():
            return 0
        return answer.indexes.last_modified

    async def pages(self, size: int = PAGE) -> AsyncIterator[list[Track]]:
        """All songs. Searching for nothing finds everything, with Navidrome and others alike."""
        start = 0
        while True:
            answer = await self._ask(
                "search3", query="", artistCount=0, albumCount=0, songCount=size, songOffset=start
            )
            page = answer.found.song if answer.found else []
            if page:
                yield page
            if len(page) < size:
                return
            start += len(page)

    async def _is_scanning(self) -> bool:
        """Navidrome dates a change by the beginning of the scan that found it: what a scan under way finds
        later would have the same date. Servers that refuse to tell have the date of its end."""
        try:
            status = (await self._ask("getScanStatus")).scan
        except Refused:
            return False
        return status is not None and status.scanning

    async def _ask(self, method: str, **parameters: Any) -> _Answer:
        form = {**self._who(), "v": VERSION, "c": CLIENT, "f": "json", **parameters}
        try:
            # In a form and not in the address, which proxies and servers write to their logs.
            response = await self._client.post(f"{self.url}/rest/{method}.view", data=form)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            reason = str(error) or type(error).__name__
            raise SubsonicError(
                f"the music server {self.url} cannot be reached: {reason}; is it running, "
                "and is MUSIC_SUBSONIC_URL right?"
            ) from error
        return self._read(response)

    def _who(self) -> dict[str, str]:
        if not self._token:
            return {"u": self._user, "p": f"enc:{self._password.encode().hex()}"}
        salt = self._salt()
        # The API's own word for it is MD5; the salt is what keeps it from being replayed as a password.
        token = hashlib.md5(f"{self._password}{salt}".encode(), usedforsecurity=False).hexdigest()
        return {"u": self._user, "t": token, "s": salt}

    def _read(self, response: httpx2.Response) -> _Answer:
        try:
            answer = msgspec.json.decode(response.content, type=_Envelope).answer
        except msgspec.DecodeError as error:
            raise SubsonicError(
                f"{self.url} does not answer as a Subsonic server (status {response.status_code}); "
                "set MUSIC_SUBSONIC_URL to the address that the web page of the server has, without /rest"
            ) from error
        if answer.error is not None or answer.status != "ok":
            raise Refused(self._sentence(answer.error or _Error(message="no reason given")))
        return answer

    def _sentence(self, error: _Error) -> str:
        at = f"the music server {self.url}"
        if error.code == WRONG_PASSWORD:
            return (
                f"{at} does not know the user {self._user!r} with this password; "
                "correct MUSIC_SUBSONIC_USER or MUSIC_SUBSONIC_PASSWORD"
            )
        if self._token and (error.code in TOKENS_NOT_TAKEN or error.code == PARAMETER_MISSING):
            return f"{at} takes no tokens ({error.message}); set MUSIC_SUBSONIC_AUTH=password"
        return f"{at} refused: {error.message} (error {error.code})"
