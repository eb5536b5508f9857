"""The vectors of articles in Qdrant. All articles share one collection, and each chunk is one point in it.

A point id is derived from article, version and chunk index. So writing a point twice is harmless.

A run writes the points of the new version, then updates the article's row, then deletes the points of the old
version. The periodic sweep (`reconciler`) deletes points that a crash left behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

import msgspec

from tidemill import ConfigurationError
from tidemill_apps.articles.posts import Post
from tidemill_apps.articles.qdrant import QdrantCaller, QdrantFolderInUse, VectorsUnavailable

if TYPE_CHECKING:
    from qdrant_client import models


_POINT_NAMESPACE = UUID("5f6a2b0e-0f5e-4a52-9a53-6b1f7a1c6d11")
POINTS_PER_PAGE = 500
CHECK_VALID_SECONDS = 60.0
"""How long the result of the last call tells whether Qdrant is available."""
SWEEP_FIELDS = ["postId", "version", "chunkIndex", "title", "hide"]


class ArticleChunk(msgspec.Struct, frozen=True, kw_only=True):
    """One chunk of one version of an article."""

    post_id: int
    version: int
    index: int
    text: str

    @property
    def name(self) -> str:
        return build_point_id(self.post_id, self.version, self.index)


class VectorHit(msgspec.Struct, frozen=True, kw_only=True):
    """A stored point near the question. `version` is 0 for points that another program wrote."""

    postId: int  # noqa: N815 - as the payload has it
    version: int
    chunkIndex: int  # noqa: N815 - as above
    chunkText: str  # noqa: N815 - as above
    score: float

    def belongs_to(self, post: Post) -> bool:
        """True if this point is a chunk of the version of `post` that search uses. Equal ids do not suffice:
        a new article may reuse the id of a deleted one."""
        if self.version != post.rag_current:
            return False
        return not self.version or self.chunkIndex < post.rag_chunks


class QdrantCheck(msgspec.Struct, frozen=True):
    """The result of the last call to Qdrant. `problem` is None if the call succeeded. `at` is the event
    loop's time in seconds."""

    problem: str | None
    at: float


class ArticleVectors:
    """Reads and writes points in the collection `collection`. `model` is stored with every point, because
    vectors of different models cannot be compared."""

    def __init__(self, qdrant: QdrantCaller, collection: str, model: str) -> None:
        self._qdrant, self._collection, self._model = qdrant, collection, model
        self._size = 0
        self._last_check: QdrantCheck | None = None

    async def close(self) -> None:
        await self._qdrant.close()

    def last_check(self) -> QdrantCheck | None:
        """Returns the result of the last call to Qdrant, or None if this process has made no call in the last
        60 s."""
        check = self._last_check
        return check if check is not None and _loop_time() - check.at < CHECK_VALID_SECONDS else None

    async def check_available(self) -> None:
        """Raises VectorsUnavailable or ConfigurationError if Qdrant cannot be used."""
        await self._exists()

    async def find_written(self, chunks: Sequence[ArticleChunk]) -> set[str]:
        """Returns the point ids of those chunks that are already stored with the same text and model."""
        if not chunks or not await self._exists():
            return set()
        texts = {chunk.name: chunk.text for chunk in chunks}
        found = await self._call("retrieve", ids=list(texts), with_payload=["chunkText", "model"])
        return {
            str(point.id)
            for point in found
            if point.payload["chunkText"] == texts[str(point.id)] and point.payload["model"] == self._model
        }

    async def write(
        self, chunks: Sequence[ArticleChunk], vectors: Sequence[list[float]], posts: dict[int, Post]
    ) -> None:
        """Writes one point per chunk with its vector. `posts` maps article ids to articles, whose title and
        visibility are stored with the points."""
        if not chunks:
            return
        await self._prepare(len(vectors[0]))
        from qdrant_client import models

        points = [
            models.PointStruct(
                id=chunk.name, vector=vector, payload=self._payload(chunk, posts[chunk.post_id])
            )
            for chunk, vector in zip(chunks, vectors, strict=True)
        ]
        await self._call("upsert", points=points, wait=True)

    async def set_label(self, post: Post) -> None:
        """Writes the title and visibility of `post` to the points of the version that search uses."""
        if post.rag_chunks and await self._exists():
            point_ids = [build_point_id(post.id, post.rag_current, index) for index in range(post.rag_chunks)]
            await self._call("set_payload", payload=build_label(post), points=point_ids, wait=True)

    async def delete_version(self, post_id: int, version: int, chunks: int) -> None:
        """Deletes the points of one version of an article. `chunks` is the number of its chunks."""
        await self.delete(build_point_id(post_id, version, index) for index in range(chunks))

    async def delete_post(self, post_id: int, *, unversioned: bool = False) -> None:
        """Deletes every point of an article. `unversioned=True`: deletes only points without a version, which
        another program wrote."""
        if await self._exists():
            from qdrant_client import models

            of_post = models.FieldCondition(key="postId", match=models.MatchValue(value=post_id))
            without = models.IsEmptyCondition(is_empty=models.PayloadField(key="version"))
            condition = models.Filter(must=[of_post, without] if unversioned else [of_post])
            await self._call("delete", points_selector=condition, wait=True)

    async def search(self, vector: list[float], limit: int, offset: int = 0) -> list[VectorHit]:
        """Returns up to `limit` points nearest to `vector`, after skipping `offset` points. Points of hidden
        articles and of other models are left out. Points of old versions are included."""
        if not await self._exists():
            return []
        self._check_size(len(vector))
        from qdrant_client import models

        shown = models.FieldCondition(key="hide", match=models.MatchValue(value="0"))
        ours = models.FieldCondition(key="model", match=models.MatchValue(value=self._model))
        unnamed = models.IsEmptyCondition(is_empty=models.PayloadField(key="model"))
        condition = models.Filter(must=[shown, models.Filter(should=[ours, unnamed])])
        answer = await self._call(
            "query_points", query=vector, query_filter=condition, limit=limit, offset=offset
        )
        return [_parse_hit(point) for point in answer.points if _is_of_article(point.payload)]

    async def count(self) -> int:
        """Counts all points, including points of old versions that are not deleted yet."""
        return int((await self._call("count")).count) if await self._exists() else 0

    async def load_pages(self) -> AsyncIterator[list[models.Record]]:
        """Yields all points of articles in pages of up to 500, without their vectors. Points without an
        article id are left out, because other programs may use the same collection."""
        at = None
        while await self._exists():
            found, at = await self._call(
                "scroll", limit=POINTS_PER_PAGE, offset=at, with_payload=SWEEP_FIELDS, with_vectors=False
            )
            yield [point for point in found if _is_of_article(point.payload)]
            if at is None:
                break

    async def delete(self, point_ids: Iterable[str]) -> None:
        """Deletes points by id."""
        if (points := list(point_ids)) and await self._exists():
            from qdrant_client import models

            await self._call("delete", points_selector=models.PointIdsList(points=list(points)), wait=True)

    async def _exists(self) -> bool:
        self._size = self._size or await self._load_size()
        return bool(self._size)

    async def _prepare(self, size: int) -> None:
        """Creates the collection for vectors of `size` numbers, if it does not exist. Raises
        ConfigurationError if it exists with another size."""
        if not await self._exists():
            self._size = await self._create(size)
        self._check_size(size)

    def _check_size(self, size: int) -> None:
        if size != self._size:
            raise ConfigurationError(
                f"the collection {self._collection} has vectors of {self._size} numbers, and the model "
                f"{self._model} gives {size}; name another collection by ARTICLES_COLLECTION and embed "
                "everything again, or set the model back"
            )

    async def _load_size(self) -> int:
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
            if found := await self._load_size():  # another process created it first
                return found
            raise
        return size

    async def _call(self, method: str, **arguments: Any) -> Any:
        try:
            answer = await self._qdrant(method, collection_name=self._collection, **arguments)
        except VectorsUnavailable as error:
            self._size = 0  # the collection may be gone when the server is back
            if not isinstance(error, QdrantFolderInUse):
                self._last_check = QdrantCheck(str(error), _loop_time())
            raise
        self._last_check = QdrantCheck(None, _loop_time())
        return answer

    def _payload(self, chunk: ArticleChunk, post: Post) -> dict[str, Any]:
        return {
            "postId": chunk.post_id,
            "chunkIndex": chunk.index,
            "chunkText": chunk.text,
            "version": chunk.version,
            "model": self._model,
            **build_label(post),
        }


def build_point_id(post_id: int, version: int, index: int) -> str:
    return str(uuid5(_POINT_NAMESPACE, f"{post_id}/{version}/{index}"))


def build_label(post: Post) -> dict[str, str]:
    return {"title": post.title, "hide": post.hide}


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


def _is_of_article(payload: dict[str, Any] | None) -> bool:
    return isinstance((payload or {}).get("postId"), int)


def _parse_hit(point: models.ScoredPoint) -> VectorHit:
    payload = point.payload or {}
    return VectorHit(
        postId=payload["postId"],
        version=payload.get("version", 0),
        chunkIndex=payload.get("chunkIndex", 0),
        chunkText=payload.get("chunkText", ""),
        score=point.score,
    )
