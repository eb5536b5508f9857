"""Finds songs: by similarity to a song, by a text, and as a filtered list."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, and_, func, or_, select

from tidemill import AnswerUnavailable, Context, Pool, Retry, Tidemill, Unique
from tidemill.web import HTTPError, retry_after_header
from tidemill_apps.common.model_clients import EmbeddingModel
from tidemill_apps.music.connections import MusicConnections
from tidemill_apps.music.library import Library
from tidemill_apps.music.tables import (
    ARTIST,
    IS_LISTED,
    TITLE,
    SongRow,
    SongStatus,
    Vector,
    songs,
    strip_nul,
    unpack_vector,
)
from tidemill_apps.music.tasks import request_vectors

_IndexState = tuple[int, int]


class SimilarSong(msgspec.Struct, frozen=True):
    """A song and its similarity: 1 for identical, about 0 for unrelated songs."""

    song: SongRow
    similarity: float


class _VectorMatrix(msgspec.Struct, frozen=True):
    """The vectors of all songs whose vector has the same length, scaled to norm 1. `rows` has one vector per
    song, in the order of `ids`. Vectors of different lengths cannot be compared."""

    ids: list[str]
    rows: NDArray[np.float32]

    def vector(self, navidrome_id: str) -> Vector | None:
        return self.rows[self.ids.index(navidrome_id)] if navidrome_id in self.ids else None

    def nearest(self, vector: Vector, count: int) -> list[tuple[str, float]]:
        similarity = self.rows @ vector
        best = np.argsort(-similarity, kind="stable")[:count]
        return [(self.ids[index], float(similarity[index])) for index in best]


class SimilarityIndex:
    def __init__(self, library: Library) -> None:
        self._library = library
        self._state: _IndexState | None = None
        self._matrices: dict[int, _VectorMatrix] = {}

    async def to_song(self, navidrome_id: str, count: int = 10) -> list[SimilarSong]:
        """Returns up to `count` songs that are most similar to the given song, the nearest first. Empty if
        the song has no vector."""
        for matrix in (await self._current()).values():
            if (vector := matrix.vector(navidrome_id)) is not None:
                found = matrix.nearest(vector, count + 1)
                return await self._matches([one for one in found if one[0] != navidrome_id][:count])
        return []

    async def to_vector(self, vector: Sequence[float], count: int = 10) -> list[SimilarSong]:
        matrix = (await self._current()).get(len(vector))
        if matrix is None:
            return []
        return await self._matches(
            matrix.nearest(_normalize_vectors(np.asarray([vector], dtype="<f4"))[0], count)
        )

    async def to_text(self, text: str, embeddings: EmbeddingModel, count: int = 10) -> list[SimilarSong]:
        """Returns up to `count` songs that are nearest to the text. Costs one provider call."""
        (vector,) = (await embeddings.embed([text], call_id="search")).vectors
        return [] if vector is None else await self.to_vector(vector, count)

    async def _matches(self, found: Sequence[tuple[str, float]]) -> list[SimilarSong]:
        rows = {row.navidrome_id: row for row in await self._library.load_rows([id_ for id_, _ in found])}
        return [SimilarSong(rows[id_], similarity) for id_, similarity in found if id_ in rows]

    async def _current(self) -> dict[int, _VectorMatrix]:
        state = await self._read_state()
        if state != self._state:
            self._matrices, self._state = await self._read_vectors(), state
        return self._matrices

    async def _read_state(self) -> _IndexState:
        """Returns the number of completed songs and the time of their last change. The index loads the
        vectors again if this pair differs from the pair at the last load."""
        query = select(func.count(), func.coalesce(func.max(songs.c.changed_at), 0))
        async with self._library.database.reading() as connection:
            number, latest = (await connection.execute(query.where(_IS_COMPLETED))).one()
        return number, latest

    async def _read_vectors(self) -> dict[int, _VectorMatrix]:
        query = select(songs.c.navidrome_id, songs.c.vector).where(_IS_COMPLETED, songs.c.vector.is_not(None))
        async with self._library.database.reading() as connection:
            rows = (await connection.execute(query.order_by(songs.c.navidrome_id))).all()
        by_length: dict[int, list[tuple[str, Vector]]] = {}
        for navidrome_id, stored in rows:
            vector = unpack_vector(stored)
            by_length.setdefault(len(vector), []).append((navidrome_id, vector))
        return {
            length: _VectorMatrix(
                [id_ for id_, _ in some], _normalize_vectors(np.stack([vector for _, vector in some]))
            )
            for length, some in by_length.items()
        }


_IS_COMPLETED = and_(songs.c.status == SongStatus.COMPLETED.value, IS_LISTED)


def _normalize_vectors(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(lengths == 0, 1, lengths)).astype(np.float32)


SEARCH_QUEUE, EMBED_TEXT_TASK = "music-search", "music-embed-text"
SEARCH_DEADLINE_SECONDS = 20.0


class TextSearch:
    def __init__(
        self, app: Tidemill, calls: Pool, connections: MusicConnections, similar: SimilarityIndex
    ) -> None:
        self._app, self._similar = app, similar
        app.queue(SEARCH_QUEUE)

        async def embed_text(ctx: Context, text: str) -> list[float] | None:
            services = await connections.open()
            return (await request_vectors(ctx, services.embeddings, calls, [text])).vectors[0]

        self.task = app.task(
            name=EMBED_TEXT_TASK,
            queue=SEARCH_QUEUE,
            pool=calls,
            retry=Retry(attempts=1),
            unique=lambda text: Unique(hashlib.sha256(text.encode()).hexdigest()),
        )(embed_text)

    async def find(self, text: str, count: int) -> list[SimilarSong]:
        try:
            vector = await self._app.answer(self.task.job(text), within=SEARCH_DEADLINE_SECONDS)
        except AnswerUnavailable as error:
            headers = {} if error.retry_after is None else retry_after_header(error.retry_after)
            raise HTTPError(
                HTTPStatus.SERVICE_UNAVAILABLE, _describe_problem(error), headers=headers
            ) from error
        if vector is None:
            raise HTTPError(
                HTTPStatus.SERVICE_UNAVAILABLE, "text: the provider gave no vector for it; use other words"
            )
        return await self._similar.to_vector(vector, count)


def _describe_problem(error: AnswerUnavailable) -> str:
    match error.code:
        case "pool_closed":
            how = "fix the cause and resume" if error.retry_after is None else "try later"
            return f"provider calls are paused: {error.reason}; {how}"
        case "failed":
            return f"the text's vector could not be made: {error.reason}; try later"
        case "too_late":
            return f"no call is free within {SEARCH_DEADLINE_SECONDS:g} s. {error.reason} Try later."
    problem = f"the text's vector was not there within {SEARCH_DEADLINE_SECONDS:g} s"
    return f"{problem}. {error.reason} Try later."


SONGS_PER_PAGE = 50
_changed_at = func.coalesce(songs.c.changed_at, 0)


class SongListQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The filters of the song list and the position of the page. `before` and `last` are the change time
    (milliseconds) and the id of the last song on the previous page."""

    status: SongStatus | None = None
    text: Annotated[str, Meta(max_length=200)] = ""
    before: Annotated[int, Meta(ge=0)] | None = None
    last: Annotated[str, Meta(max_length=1000)] = ""

    def chosen(self) -> dict[str, str]:
        """Returns the filters without the page position."""
        given = {"status": self.status.value if self.status else "", "text": self.text.strip()}
        return {name: value for name, value in given.items() if value}


class SongListEntry(Struct, frozen=True):
    navidrome_id: str
    title: str
    artist: str
    mood: str | None
    status: str
    changed_at: int


class SongListPage(Struct, frozen=True):
    """One page of songs. `next` is the query of the next page; None at the end."""

    songs: Sequence[SongListEntry]
    next: SongListQuery | None


async def load_song_list(library: Library, wanted: SongListQuery) -> SongListPage:
    columns = (songs.c.navidrome_id, TITLE, ARTIST, songs.c.mood, songs.c.status, _changed_at)
    query = (
        select(*columns).where(*_list_conditions(wanted)).order_by(_changed_at.desc(), songs.c.navidrome_id)
    )
    async with library.database.reading() as connection:
        rows = (await connection.execute(query.limit(SONGS_PER_PAGE + 1))).all()
    lines = [SongListEntry(*row) for row in rows[:SONGS_PER_PAGE]]
    if len(rows) <= SONGS_PER_PAGE:
        return SongListPage(lines, None)
    end = lines[-1]
    return SongListPage(lines, msgspec.structs.replace(wanted, before=end.changed_at, last=end.navidrome_id))


def _list_conditions(wanted: SongListQuery) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = [IS_LISTED]
    if wanted.status is not None:
        conditions.append(songs.c.status == wanted.status.value)
    if text := strip_nul(wanted.text.strip()):
        conditions.append(
            or_(TITLE.icontains(text, autoescape=True), ARTIST.icontains(text, autoescape=True))
        )
    if wanted.before is not None:
        same = and_(_changed_at == wanted.before, songs.c.navidrome_id > strip_nul(wanted.last))
        conditions.append(or_(_changed_at < wanted.before, same))
    return conditions
