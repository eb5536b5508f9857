"""Songs like a song, or like what a text says: by the angle between their vectors.

All vectors are kept in memory until a song is completed or changed: ten thousand of them are multiplied in a
few milliseconds, and take 30 MB at 768 dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray
from sqlalchemy import and_, func, select

from tidemill_apps.common.providers.embeddings import Embeddings
from tidemill_apps.music.library import Library
from tidemill_apps.music.rows import THERE
from tidemill_apps.music.songs import Status, Stored
from tidemill_apps.music.tables import songs
from tidemill_apps.music.vectors import Vector, unpacked

_State = tuple[int, int]


class Match(msgspec.Struct, frozen=True):
    """`likeness` is 1 for the same, and about 0 for what has nothing in common."""

    song: Stored
    likeness: float


class _Matrix(msgspec.Struct, frozen=True):
    """Vectors of one length, each of size 1. Those of another model cannot be compared with them."""

    ids: list[str]
    rows: NDArray[np.float32]

    def vector(self, navidrome_id: str) -> Vector | None:
        return self.rows[self.ids.index(navidrome_id)] if navidrome_id in self.ids else None

    def nearest(self, vector: Vector, count: int) -> list[tuple[str, float]]:
        likeness = self.rows @ vector
        best = np.argsort(-likeness, kind="stable")[:count]
        return [(self.ids[index], float(likeness[index])) for index in best]


class Similar:
    def __init__(self, library: Library) -> None:
        self._library = library
        self._state: _State | None = None
        self._matrices: dict[int, _Matrix] = {}

    async def to_song(self, navidrome_id: str, count: int = 10) -> list[Match]:
        """The nearest others, the nearest first. None for a song without a vector."""
        for matrix in (await self._current()).values():
            if (vector := matrix.vector(navidrome_id)) is not None:
                found = matrix.nearest(vector, count + 1)
                return await self._matches([one for one in found if one[0] != navidrome_id][:count])
        return []

    async def to_vector(self, vector: Sequence[float], count: int = 10) -> list[Match]:
        matrix = (await self._current()).get(len(vector))
        if matrix is None:
            return []
        return await self._matches(matrix.nearest(_unit(np.asarray([vector], dtype="<f4"))[0], count))

    async def to_text(self, text: str, embeddings: Embeddings, count: int = 10) -> list[Match]:
        """One call, paid for."""
        (vector,) = (await embeddings.embed([text], mark="search")).vectors
        return [] if vector is None else await self.to_vector(vector, count)

    async def _matches(self, found: Sequence[tuple[str, float]]) -> list[Match]:
        rows = {row.navidrome_id: row for row in await self._library.stored([id_ for id_, _ in found])}
        return [Match(rows[id_], likeness) for id_, likeness in found if id_ in rows]

    async def _current(self) -> dict[int, _Matrix]:
        state = await self._read_state()
        if state != self._state:
            self._matrices, self._state = await self._read_vectors(), state
        return self._matrices

    async def _read_state(self) -> _State:
        """Another one whenever a song was completed, or ceased to be."""
        query = select(func.count(), func.coalesce(func.max(songs.c.changed_at), 0))
        async with self._library.database.reading() as connection:
            number, latest = (await connection.execute(query.where(_COMPLETED))).one()
        return number, latest

    async def _read_vectors(self) -> dict[int, _Matrix]:
        query = select(songs.c.navidrome_id, songs.c.vector).where(_COMPLETED, songs.c.vector.is_not(None))
        async with self._library.database.reading() as connection:
            rows = (await connection.execute(query.order_by(songs.c.navidrome_id))).all()
        by_length: dict[int, list[tuple[str, Vector]]] = {}
        for navidrome_id, stored in rows:
            vector = unpacked(stored)
            by_length.setdefault(len(vector), []).append((navidrome_id, vector))
        return {
            length: _Matrix([id_ for id_, _ in some], _unit(np.stack([vector for _, vector in some])))
            for length, some in by_length.items()
        }


_COMPLETED = and_(songs.c.status == Status.COMPLETED.value, THERE)


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(lengths == 0, 1, lengths)).astype(np.float32)
