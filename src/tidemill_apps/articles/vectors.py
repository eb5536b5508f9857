"""The vectors of articles: points in one collection of Qdrant, a chunk each.

A point is named after its article, version and number, so that writing it again is harmless, and a run that
is repeated finds what it has paid for already. Which version is searched, and whether the article is hidden,
only its row says: a new version is written beside the old one, the row then names it, and the old one goes.
Whatever dies between two of these steps leaves points that nobody finds, until they are swept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

import msgspec

from tidemill import ConfigurationError
from tidemill_apps.articles.posts import Post
from tidemill_apps.articles.qdrant import FolderTaken, Qdrant, VectorsUnavailable

if TYPE_CHECKING:
    from qdrant_client import models

_NAMES = UUID("5f6a2b0e-0f5e-4a52-9a53-6b1f7a1c6d11")
PAGE = 500
TRUSTED = 60.0
"""Seconds for which the last call says whether Qdrant can be used."""
SWEPT = ["postId", "version", "chunkIndex", "title", "hide"]


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk of a version of an article."""

    post_id: int
    version: int
    index: int
    text: str

    @property
    def name(self) -> str:
        return name_of(self.post_id, self.version, self.index)


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A point that is near. Points of other programs have no version."""

    postId: int  # noqa: N815 - as the payload has it
    version: int
    chunkIndex: int  # noqa: N815 - as above
    chunkText: str  # noqa: N815 - as above
    score: float

    def counts_for(self, post: Post) -> bool:
        """Whether it is one of the chunks the article has now. In an existing table the id of an article that
        is gone may be another one's by now, and its points still be there."""
        if self.version != post.rag_current:
            return False
        return not self.version or self.chunkIndex < post.rag_chunks


class Seen(msgspec.Struct, frozen=True):
    """How the last call to Qdrant ended, and when by the event loop's clock. `problem`: None when it was
    answered."""

    problem: str | None
    at: float


class Vectors:
    """`model` is kept with every point: vectors of another model are not those that were paid for."""

    def __init__(self, qdrant: Qdrant, collection: str, model: str) -> None:
        self._qdrant, self._collection, self._model = qdrant, collection, model
        self._size = 0
        self._seen: Seen | None = None

    async def close(self) -> None:
        await self._qdrant.close()

    def seen(self) -> Seen | None:
        """None when this process has not asked of late."""
        seen = self._seen
        return seen if seen is not None and _now() - seen.at < TRUSTED else None

    async def mind_away(self) -> None:
        """Raises when Qdrant cannot be used."""
        await self._exists()

    async def written(self, pieces: Sequence[Piece]) -> set[str]:
        """The names of those that are there already, with this text and by this model."""
        if not pieces or not await self._exists():
            return set()
        texts = {piece.name: piece.text for piece in pieces}
        found = await self._call("retrieve", ids=list(texts), with_payload=["chunkText", "model"])
        return {
            str(point.id)
            for point in found
            if point.payload["chunkText"] == texts[str(point.id)] and point.payload["model"] == self._model
        }

    async def write(
        self, pieces: Sequence[Piece], vectors: Sequence[list[float]], posts: dict[int, Post]
    ) -> None:
        """Labelled as their articles are in `posts`."""
        if not pieces:
            return
        await self._prepare(len(vectors[0]))
        from qdrant_client import models

        points = [
            models.PointStruct(
                id=piece.name, vector=vector, payload=self._payload(piece, posts[piece.post_id])
            )
            for piece, vector in zip(pieces, vectors, strict=True)
        ]
        await self._call("upsert", points=points, wait=True)

    async def label(self, post: Post) -> None:
        """The title and the hiding of the version that is searched."""
        if post.rag_chunks and await self._exists():
            names = [name_of(post.id, post.rag_current, index) for index in range(post.rag_chunks)]
            await self._call("set_payload", payload=label_of(post), points=names, wait=True)

    async def drop(self, post_id: int, version: int, chunks: int) -> None:
        """The points of one version."""
        await self.delete(name_of(post_id, version, index) for index in range(chunks))

    async def forget(self, post_id: int, *, unversioned: bool = False) -> None:
        """Every point of an article that is gone, or only those of another program."""
        if await self._exists():
            from qdrant_client import models

            of_it = models.FieldCondition(key="postId", match=models.MatchValue(value=post_id))
            without = models.IsEmptyCondition(is_empty=models.PayloadField(key="version"))
            meant = models.Filter(must=[of_it, without] if unversioned else [of_it])
            await self._call("delete", points_selector=meant, wait=True)

    async def search(self, vector: list[float], limit: int, offset: int = 0) -> list[Hit]:
        """The nearest points of articles that are not hidden, of whatever version, and of this model: what
        another one means by its numbers is another thing."""
        if not await self._exists():
            return []
        self._mind(len(vector))
        from qdrant_client import models

        shown = models.FieldCondition(key="hide", match=models.MatchValue(value="0"))
        ours = models.FieldCondition(key="model", match=models.MatchValue(value=self._model))
        unnamed = models.IsEmptyCondition(is_empty=models.PayloadField(key="model"))
        meant = models.Filter(must=[shown, models.Filter(should=[ours, unnamed])])
        answer = await self._call(
            "query_points", query=vector, query_filter=meant, limit=limit, offset=offset
        )
        return [_hit(point) for point in answer.points if _is_of_article(point.payload)]

    async def count(self) -> int:
        """Points there are, those that wait to be swept included."""
        return int((await self._call("count")).count) if await self._exists() else 0

    async def pages(self) -> AsyncIterator[list[models.Record]]:
        """Every point of an article, with its place and its label. Others may keep points in the same
        collection."""
        at = None
        while await self._exists():
            found, at = await self._call(
                "scroll", limit=PAGE, offset=at, with_payload=SWEPT, with_vectors=False
            )
            yield [point for point in found if _is_of_article(point.payload)]
            if at is None:
                break

    async def delete(self, names: Iterable[str]) -> None:
        """The points of these names."""
        if (points := list(names)) and await self._exists():
            from qdrant_client import models

            await self._call("delete", points_selector=models.PointIdsList(points=list(points)), wait=True)

    async def _exists(self) -> bool:
        self._size = self._size or await self._size_there()
        return bool(self._size)

    async def _prepare(self, size: int) -> None:
        """A collection for vectors of that size; once there is one, others are refused."""
        if not await self._exists():
            self._size = await self._create(size)
        self._mind(size)

    def _mind(self, size: int) -> None:
        if size != self._size:
            raise ConfigurationError(
                f"the collection {self._collection} has vectors of {self._size} numbers, and the model "
                f"{self._model} gives {size}; name another collection by ARTICLES_COLLECTION and embed "
                "everything again, or set the model back"
            )

    async def _size_there(self) -> int:
        if not await self._call("collection_exists"):
            return 0
        config = (await self._call("get_collection")).config.params.vectors
        if size := int(getattr(config, "size", 0)):
            return size
        raise ConfigurationError(
            f"the collection {self._collection} has vectors with names, and one without is needed; "
            "name another collection by ARTICLES_COLLECTION"
        )

    async def _create(self, size: int) -> int:
        from qdrant_client import models

        vectors = models.VectorParams(size=size, distance=models.Distance.COSINE)
        try:
            await self._call("create_collection", vectors_config=vectors)
        except (VectorsUnavailable, ValueError):
            if found := await self._size_there():  # another process was first
                return found
            raise
        return size

    async def _call(self, method: str, **arguments: Any) -> Any:
        try:
            answer = await self._qdrant(method, collection_name=self._collection, **arguments)
        except VectorsUnavailable as error:
            self._size = 0  # the collection may be gone when the server is back
            if not isinstance(error, FolderTaken):
                self._seen = Seen(str(error), _now())
            raise
        self._seen = Seen(None, _now())
        return answer

    def _payload(self, piece: Piece, post: Post) -> dict[str, Any]:
        return {
            "postId": piece.post_id,
            "chunkIndex": piece.index,
            "chunkText": piece.text,
            "version": piece.version,
            "model": self._model,
            **label_of(post),
        }


def name_of(post_id: int, version: int, index: int) -> str:
    return str(uuid5(_NAMES, f"{post_id}/{version}/{index}"))


def label_of(post: Post) -> dict[str, str]:
    return {"title": post.title, "hide": post.hide}


def _now() -> float:
    return asyncio.get_running_loop().time()


def _is_of_article(payload: dict[str, Any] | None) -> bool:
    return isinstance((payload or {}).get("postId"), int)


def _hit(point: models.ScoredPoint) -> Hit:
    payload = point.payload or {}
    return Hit(
        postId=payload["postId"],
        version=payload.get("version", 0),
        chunkIndex=payload.get("chunkIndex", 0),
        chunkText=payload.get("chunkText", ""),
        score=point.score,
    )
