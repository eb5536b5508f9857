"""Task handlers: embed a batch of articles, refresh payloads, re-embed everything, delete vectors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress

import msgspec

from tidemill import (
    ConfigurationError,
    Context,
    DependencyUnavailable,
    FailedItem,
    GiveUp,
    Pool,
    Task,
    Tidemill,
)
from tidemill_apps.articles.chunks import CallPacker, Chunker, TextChunk
from tidemill_apps.articles.embed_requests import EmbeddingRequests
from tidemill_apps.articles.embedding_state import EmbeddingState, FinishedVersion
from tidemill_apps.articles.metrics import ArticleMetrics
from tidemill_apps.articles.posts import Post, Posts, PostStatus
from tidemill_apps.articles.qdrant import VectorsUnavailable
from tidemill_apps.articles.vectors import ArticleChunk, ArticleVectors
from tidemill_apps.common.model_clients import AnswerUnusable, EmbeddingModel, EmbeddingResult


async def delete_vectors(posts: Posts, vectors: ArticleVectors, post_id: int) -> None:
    """Deletes all vectors of the deleted article `post_id`. If a new article has the same id, it loses its
    vectors too, and is marked as pending."""
    await vectors.delete_post(post_id)
    post = await posts.get(post_id)
    if post is not None and (post.rag_current or post.rag_status == PostStatus.PROCESSING):
        await EmbeddingState(posts).requeue([post])


UNKNOWN_LABEL = -1
"""A label that no article has; vectors with an unknown label are relabelled."""


class EmbeddingInput(msgspec.Struct, frozen=True):
    piece: ArticleChunk
    tokens: int


class ArticleRun(msgspec.Struct):
    """The work of one run on one article. A label is a value of `rag_label`, which grows when title or
    visibility changes.

    - `unwritten`: indexes of the chunks whose vectors are not written yet.
    - `label`: the oldest label of the written vectors; -1 if unknown, None if no vector is written.
    - `has_written`: True if this run itself has written a vector.
    - `superseded`: True if another run has taken over the article, or the article was deleted.
    """

    post: Post
    chunks: list[TextChunk]
    unwritten: set[int]
    label: int | None = None
    has_written: bool = False
    superseded: bool = False

    @property
    def inputs(self) -> list[EmbeddingInput]:
        return [
            EmbeddingInput(self._piece(index), self.chunks[index].tokens) for index in sorted(self.unwritten)
        ]

    def mark_written(self, index: int, label: int | None) -> None:
        """Records that the vector of the chunk `index` is stored. `label` is the article's `rag_label` when
        the vector was written; None if an earlier attempt wrote it."""
        self.unwritten.discard(index)
        self.has_written = self.has_written or label is not None
        if label is None:
            self.label = UNKNOWN_LABEL
        elif self.label is None:
            self.label = label

    def finished(self) -> FinishedVersion:
        label = self.post.rag_label if self.label is None else self.label
        return FinishedVersion(
            self.post.id, self.post.rag_version, len(self.chunks), label, self.post.rag_run
        )

    def _piece(self, index: int) -> ArticleChunk:
        version = self.post.rag_version
        return ArticleChunk(post_id=self.post.id, version=version, index=index, text=self.chunks[index].text)


async def start_runs(posts: Sequence[Post], chunker: Chunker) -> dict[int, ArticleRun]:
    """Splits the articles into chunks and returns one `ArticleRun` per article id. The work runs in a thread,
    because a long text takes some tenths of a second."""
    return await asyncio.to_thread(_split_posts, posts, chunker)


def _split_posts(posts: Sequence[Post], chunker: Chunker) -> dict[int, ArticleRun]:
    found = {}
    for post in posts:
        chunks = chunker.split_markdown(post.content)
        found[post.id] = ArticleRun(post, chunks, set(range(len(chunks))))
    return found


class VectorWriteError(Exception):
    """Raised if vectors that are already paid for cannot be written. It counts as a failed attempt, so that a
    broken Qdrant does not cause paid calls forever."""


class BatchEmbedder:
    """Embeds a batch of articles in as few provider calls as possible. `counts_tokens=True`: the pool also
    limits tokens."""

    def __init__(
        self,
        posts: Posts,
        vectors: ArticleVectors,
        packer: CallPacker,
        metrics: ArticleMetrics,
        *,
        pool: Pool,
        counts_tokens: bool,
    ) -> None:
        self._posts, self._state, self._vectors = posts, EmbeddingState(posts), vectors
        self._packer, self._metrics = packer, metrics
        self._pool, self._counts_tokens = pool, counts_tokens

    async def run(
        self, ctx: Context, embeddings: EmbeddingModel, ids: Sequence[int]
    ) -> list[int | FailedItem]:
        """Embeds the articles `ids`. Returns, per article, the number of chunks or a `FailedItem`. While the
        database or Qdrant is unavailable, the jobs wait without losing an attempt."""
        try:
            return await self._run(ctx, embeddings, ids)
        except DependencyUnavailable as error:
            with suppress(DependencyUnavailable):
                for job in ctx.batch:
                    await self._state.return_to_pending(job, str(error))
            raise
        except ConfigurationError as error:  # a further attempt would be paid for and fail too
            raise GiveUp(str(error)) from None

    async def _run(
        self, ctx: Context, embeddings: EmbeddingModel, ids: Sequence[int]
    ) -> list[int | FailedItem]:
        with self._return_unused_call(ctx):
            posts = await self._state.begin_run(dict(zip(ids, ctx.batch, strict=True)))
            work = await start_runs(
                [post for post in posts.values() if post.rag_status != PostStatus.COMPLETED],
                self._packer.chunker,
            )
            await self._skip_written_chunks(work)
            await self._finish(work.values())
        inputs = [each for run in work.values() for each in run.inputs]
        if not inputs:
            self._return_call(ctx)
        for number, planned in enumerate(self._packer.calls(inputs, lambda each: each.tokens)):
            call = [each for each in planned if not work[each.piece.post_id].superseded]
            if not call:  # every article was taken over: do not pay
                continue
            async with self._reserve_call(ctx, number, call):
                mark = f"{ctx.job_id}/{number}" if number else ctx.job_id
                answer = await embeddings.embed([each.piece.text for each in call], call_id=mark)
                ctx.used(answer.response)
            self._metrics.count_called(len(call))
            await self._write_vectors(call, answer, work)
        return [await self._outcome(post_id, posts, work) for post_id in ids]

    @asynccontextmanager
    async def _reserve_call(
        self, ctx: Context, number: int, call: Sequence[EmbeddingInput]
    ) -> AsyncIterator[None]:
        """Reserves the units of the batch's provider call `number` during the `async with` block. The claim
        has already reserved the units of call 0, and the concurrency unit for all calls."""
        if not number:
            yield
            return
        reservation = ctx.spend(self._pool, concurrent=0)
        if self._counts_tokens:
            reservation = ctx.spend(self._pool, concurrent=0, tokens=sum(each.tokens for each in call))
        async with reservation:
            yield

    @contextmanager
    def _return_unused_call(self, ctx: Context) -> Iterator[None]:
        """If the `with` block finds that Qdrant is set up wrongly, gives back the units that the claim
        reserved, because no provider call follows."""
        try:
            yield
        except ConfigurationError:
            self._return_call(ctx)
            raise

    def _return_call(self, ctx: Context) -> None:
        """Gives back the units that the claim reserved, because no provider call is made."""
        if self._counts_tokens:
            ctx.used(requests=0, tokens=0)
        else:
            ctx.used(requests=0)

    async def _skip_written_chunks(self, work: Mapping[int, ArticleRun]) -> None:
        """Marks those chunks as written whose vectors an earlier attempt has stored. It runs before any
        provider call, so an unavailable Qdrant is noticed before anything is paid for."""
        pieces = [each.piece for run in work.values() for each in run.inputs]
        names = await self._vectors.find_written(pieces)
        for piece in pieces:
            if piece.name in names:
                work[piece.post_id].mark_written(piece.index, None)

    async def _write_vectors(
        self, call: Sequence[EmbeddingInput], answer: EmbeddingResult, work: Mapping[int, ArticleRun]
    ) -> None:
        """Writes the vectors of one provider call. Title and visibility are read again, because they may have
        changed during the call. Articles that another run has taken over are left out."""
        touched = {each.piece.post_id: work[each.piece.post_id] for each in call}
        posts = {post.id: post for post in await self._posts.load(touched)}
        for post_id, run in touched.items():
            if post_id not in posts or posts[post_id].rag_run != run.post.rag_run:
                await self._withdraw(run)
        pairs = [
            (each.piece, vector)
            for each, vector in zip(call, answer.vectors, strict=True)
            if vector is not None and not touched[each.piece.post_id].superseded
        ]
        try:
            await self._vectors.write([piece for piece, _ in pairs], [vector for _, vector in pairs], posts)
        except VectorsUnavailable as error:
            raise VectorWriteError(str(error)) from None
        for piece, _ in pairs:
            work[piece.post_id].mark_written(piece.index, posts[piece.post_id].rag_label)
        await self._finish(touched.values())

    async def _finish(self, work: Iterable[ArticleRun]) -> None:
        """For each article whose chunks are all written, switches search to the new version and deletes the
        vectors of the old version."""
        done = [run for run in work if not run.unwritten and not run.superseded]
        superseded = await self._state.finish([run.finished() for run in done]) if done else set()
        for run in done:
            if run.post.id in superseded:
                await self._withdraw(run)
            else:
                await self._vectors.delete_version(run.post.id, run.post.rag_current, run.post.rag_chunks)

    async def _withdraw(self, run: ArticleRun) -> None:
        """Stops the work on an article that was deleted or that another run has taken over. If this run wrote
        vectors of an outdated text, it deletes them."""
        run.superseded = True
        if run.has_written and await self._state.check_overwritten(run.post):
            await self._vectors.delete_version(run.post.id, run.post.rag_version, len(run.chunks))

    async def _outcome(
        self, post_id: int, posts: Mapping[int, Post], work: Mapping[int, ArticleRun]
    ) -> int | FailedItem:
        if post_id not in posts:
            await delete_vectors(self._posts, self._vectors, post_id)
            return 0
        if post_id not in work:
            return posts[post_id].rag_chunks
        run = work[post_id]
        if run.unwritten and not run.superseded:
            first = min(run.unwritten) + 1
            return FailedItem(f"the provider gave no vector for chunk {first} of {len(run.chunks)}")
        return len(run.chunks)


QUEUE_FULL_RETRY_SECONDS = 30.0
NIGHTLY_SCHEDULE = "nightly"


async def refresh_payload(posts: Posts, vectors: ArticleVectors, post_id: int) -> bool:
    """Writes the article's title and visibility to its vectors. If the article was deleted, it deletes the
    vectors. Returns True if the article has vectors."""
    state = EmbeddingState(posts)
    while (post := await posts.get(post_id)) is not None:
        if not post.rag_current:  # requested when an earlier article with this id was deleted
            await vectors.delete_post(post_id, unversioned=True)
        await vectors.set_label(post)
        if await state.mark_labelled(post):
            return post.rag_chunks > 0
    await delete_vectors(posts, vectors, post_id)
    return False


async def reembed_all(
    requests: EmbeddingRequests, after: int, enqueue_rest: Callable[[int], Awaitable[object]]
) -> int:
    """Requests embeddings of all visible articles with an id above `after`, and returns their number. If the
    queue is full, calls `enqueue_rest` with the id after which a later job continues."""
    asked, rest = await requests.request_until_full(after)
    if rest is not None:
        await enqueue_rest(rest)
    return asked


def schedule_nightly(app: Tidemill, reembed: Task[..., int], cron: str, zone: str) -> None:
    try:
        app.schedule(NIGHTLY_SCHEDULE, reembed, cron=cron, tz=zone)
    except ConfigurationError as error:
        problem = str(error).removeprefix(f"schedule {NIGHTLY_SCHEDULE!r}: cron: ")
        raise ConfigurationError(f"ARTICLES_NIGHTLY: {problem}") from None


def get_single_vector(answer: EmbeddingResult) -> list[float]:
    [vector] = answer.vectors
    if vector is None:
        raise AnswerUnusable("the provider gave no vector for the question", answer.response)
    return vector
