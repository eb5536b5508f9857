"""A client of Subsonic-compatible servers, such as Navidrome.

Every error message names the server, the problem and the remedy."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import msgspec

from tidemill_apps.music.tables import Track

API_VERSION, CLIENT_NAME = "1.16.1", "tidemill"
SONGS_PER_REQUEST = 500
FAR_FUTURE_MILLISECONDS = 2**53
"""With this time for `ifModifiedSince`, a server returns only the date of the last change."""
WRONG_PASSWORD, TOKENS_UNSUPPORTED, PARAMETER_MISSING = 40, (41, 42, 43), 10


class SubsonicError(Exception):
    """The music server cannot be reached or is not a Subsonic server."""


class SubsonicRefusal(SubsonicError):
    """The music server refused the request."""


class _SubsonicFault(msgspec.Struct):
    code: int = 0
    message: str = ""


class _SubsonicSongs(msgspec.Struct):
    song: list[Track] = []


class _SubsonicIndexes(msgspec.Struct):
    last_modified: int = msgspec.field(default=0, name="lastModified")


class _SubsonicScan(msgspec.Struct):
    scanning: bool = False


class _SubsonicReply(msgspec.Struct):
    status: str
    version: str
    error: _SubsonicFault | None = None
    found: _SubsonicSongs | None = msgspec.field(default=None, name="searchResult3")
    indexes: _SubsonicIndexes | None = None
    scan: _SubsonicScan | None = msgspec.field(default=None, name="scanStatus")


class _SubsonicEnvelope(msgspec.Struct):
    answer: _SubsonicReply = msgspec.field(name="subsonic-response")


class SubsonicClient:
    """Calls a music server. `salt` returns a new random text for each call. With `token=False` the client
    sends the password itself, for servers that accept no token. Use https in this case."""

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
        """Checks the address and the password."""
        await self._call("ping")

    async def last_modified(self) -> int:
        """Returns when the collection last changed, in milliseconds; 0 if unknown or during a scan."""
        answer = await self._call("getIndexes", ifModifiedSince=FAR_FUTURE_MILLISECONDS)
        if answer.indexes is None or await self._is_scanning():
            return 0
        return answer.indexes.last_modified

    async def pages(self, size: int = SONGS_PER_REQUEST) -> AsyncIterator[list[Track]]:
        """Yields all songs of the server, in lists of up to `size` songs. It sends an empty search, which
        returns everything in Navidrome and other servers."""
        start = 0
        while True:
            answer = await self._call(
                "search3", query="", artistCount=0, albumCount=0, songCount=size, songOffset=start
            )
            page = answer.found.song if answer.found else []
            if page:
                yield page
            if len(page) < size:
                return
            start += len(page)

    async def _is_scanning(self) -> bool:
        """True while the server scans its files; a sync during a scan would miss changes. False for servers
        that do not support this request."""
        try:
            status = (await self._call("getScanStatus")).scan
        except SubsonicRefusal:
            return False
        return status is not None and status.scanning

    async def _call(self, method: str, **parameters: Any) -> _SubsonicReply:
        form = {**self._credentials(), "v": API_VERSION, "c": CLIENT_NAME, "f": "json", **parameters}
        try:
            # In a form, not in the URL, which proxies and servers log.
            response = await self._client.post(f"{self.url}/rest/{method}.view", data=form)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            reason = str(error) or type(error).__name__
            raise SubsonicError(
                f"the music server {self.url} cannot be reached: {reason}; is it running, "
                "and is MUSIC_SUBSONIC_URL right?"
            ) from error
        return self._read(response)

    def _credentials(self) -> dict[str, str]:
        if not self._token:
            return {"u": self._user, "p": f"enc:{self._password.encode().hex()}"}
        salt = self._salt()
        # The API requires MD5. The salt prevents a replay.
        token = hashlib.md5(f"{self._password}{salt}".encode(), usedforsecurity=False).hexdigest()
        return {"u": self._user, "t": token, "s": salt}

    def _read(self, response: httpx2.Response) -> _SubsonicReply:
        try:
            answer = msgspec.json.decode(response.content, type=_SubsonicEnvelope).answer
        except msgspec.DecodeError as error:
            raise SubsonicError(
                f"{self.url} does not answer as a Subsonic server (status {response.status_code}); "
                "set MUSIC_SUBSONIC_URL to the address that the web page of the server has, without /rest"
            ) from error
        if answer.error is not None or answer.status != "ok":
            raise SubsonicRefusal(
                self._format_fault(answer.error or _SubsonicFault(message="no reason given"))
            )
        return answer

    def _format_fault(self, error: _SubsonicFault) -> str:
        at = f"the music server {self.url}"
        if error.code == WRONG_PASSWORD:
            return (
                f"{at} does not know the user {self._user!r} with this password; "
                "correct MUSIC_SUBSONIC_USER or MUSIC_SUBSONIC_PASSWORD"
            )
        if self._token and (error.code in TOKENS_UNSUPPORTED or error.code == PARAMETER_MISSING):
            return f"{at} takes no tokens ({error.message}); set MUSIC_SUBSONIC_AUTH=password"
        return f"{at} refused: {error.message} (error {error.code})"
