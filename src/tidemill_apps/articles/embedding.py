"""Many articles in one call: the handler of the batch task.

The text is read when the job runs. What is paid for is written as soon as the answer is there, under names
that the next attempt finds again: only what dies between the answer and the write is paid for twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress

from tidemill import ConfigurationError, Context, Failed, GiveUp, Pool, SnoozeFor, StoreUnavailable
from tidemill_apps.articles.forgetting import forget
from tidemill_apps.articles.metrics import Measures
from tidemill_apps.articles.packing import Packing
from tidemill_apps.articles.posts import Post, Posts, Status
from tidemill_apps.articles.qdrant import VectorsUnavailable
from tidemill_apps.articles.standing import Standing
from tidemill_apps.articles.underway import Input, Underway, take_up
from tidemill_apps.articles.vectors import Vectors
from tidemill_apps.common.providers.embeddings import Embedded, Embeddings

AWAY = 15.0
"""Seconds until articles come back when they cannot be written."""


class Unwritten(Exception):
    """The vectors are paid for and cannot be written. That is an attempt: to come back as often as it takes
    would be to pay each time."""


class Embedding:
    """`counts_tokens`: whether the pool does, and not only requests."""

    def __init__(
        self,
        posts: Posts,
        vectors: Vectors,
        packing: Packing,
        measures: Measures,
        *,
        pool: Pool,
        counts_tokens: bool,
    ) -> None:
        self._posts, self._standing, self._vectors = posts, Standing(posts), vectors
        self._packing, self._measures = packing, measures
        self._pool, self._counts_tokens = pool, counts_tokens

    async def run(self, ctx: Context, embeddings: Embeddings, ids: Sequence[int]) -> list[int | Failed]:
        """How many chunks each article has. Rows or vectors that cannot be written are nobody's fault: the
        articles come back, and no attempt is spent."""
        try:
            return await self._run(ctx, embeddings, ids)
        except StoreUnavailable as error:
            with suppress(StoreUnavailable):
                for job in ctx.batch:
                    await self._standing.wait(job, str(error))
            # Not from the error: what Qdrant answered would be read as the provider's answer.
            raise SnoozeFor(AWAY, str(error)) from None
        except ConfigurationError as error:  # every further attempt would be paid for, and fail
            raise GiveUp(str(error)) from None

    async def _run(self, ctx: Context, embeddings: Embeddings, ids: Sequence[int]) -> list[int | Failed]:
        with self._given_back(ctx):
            posts = await self._standing.begin(dict(zip(ids, ctx.batch, strict=True)))
            work = await take_up(
                [post for post in posts.values() if post.rag_status != Status.COMPLETED],
                self._packing.chunking,
            )
            await self._skip_written(work)
            await self._finish(work.values())
        inputs = [each for one in work.values() for each in one.inputs]
        if not inputs:
            self._give_back(ctx)
        for number, planned in enumerate(self._packing.calls(inputs, lambda each: each.tokens)):
            call = [each for each in planned if not work[each.piece.post_id].lost]
            if not call:  # nobody would have what is paid for
                continue
            async with self._taken(ctx, number, call):
                mark = f"{ctx.job_id}/{number}" if number else ctx.job_id
                answer = await embeddings.embed([each.piece.text for each in call], mark=mark)
                ctx.used(answer.response)
            self._measures.called(len(call))
            await self._keep(call, answer, work)
        return [await self._outcome(post_id, posts, work) for post_id in ids]

    @asynccontextmanager
    async def _taken(self, ctx: Context, number: int, call: Sequence[Input]) -> AsyncIterator[None]:
        """The first call was taken with the claim. The others come one after the other, so that they are no
        more at once than that one."""
        if not number:
            yield
            return
        taken = ctx.spend(self._pool, concurrent=0)
        if self._counts_tokens:
            taken = ctx.spend(self._pool, concurrent=0, tokens=sum(each.tokens for each in call))
        async with taken:
            yield

    @contextmanager
    def _given_back(self, ctx: Context) -> Iterator[None]:
        """What is not paid for is not counted: a Qdrant that is away for a day would use up the quota."""
        try:
            yield
        except (StoreUnavailable, ConfigurationError):
            self._give_back(ctx)
            raise

    def _give_back(self, ctx: Context) -> None:
        """The call that was taken with the claim is not made."""
        if self._counts_tokens:
            ctx.used(requests=0, tokens=0)
        else:
            ctx.used(requests=0)

    async def _skip_written(self, work: Mapping[int, Underway]) -> None:
        """Asked before anything is paid for, also to learn whether vectors could be written at all."""
        pieces = [each.piece for one in work.values() for each in one.inputs]
        names = await self._vectors.written(pieces)
        for piece in pieces:
            if piece.name in names:
                work[piece.post_id].wrote(piece.index, None)

    async def _keep(self, call: Sequence[Input], answer: Embedded, work: Mapping[int, Underway]) -> None:
        """Labelled as the articles are by now, and not as they were when the call was made."""
        touched = {each.piece.post_id: work[each.piece.post_id] for each in call}
        posts = {post.id: post for post in await self._posts.many(touched)}
        for post_id, one in touched.items():
            if post_id not in posts or posts[post_id].rag_run != one.post.rag_run:
                await self._withdraw(one)
        pairs = [
            (each.piece, vector)
            for each, vector in zip(call, answer.vectors, strict=True)
            if vector is not None and not touched[each.piece.post_id].lost
        ]
        try:
            await self._vectors.write([piece for piece, _ in pairs], [vector for _, vector in pairs], posts)
        except VectorsUnavailable as error:
            raise Unwritten(str(error)) from None
        for piece, _ in pairs:
            work[piece.post_id].wrote(piece.index, posts[piece.post_id].rag_label)
        await self._finish(touched.values())

    async def _finish(self, work: Iterable[Underway]) -> None:
        """New before old: what is written is searched from here on, then the version before goes."""
        done = [one for one in work if not one.left and not one.lost]
        lost = await self._standing.finish([one.finished() for one in done]) if done else set()
        for one in done:
            if one.post.id in lost:
                await self._withdraw(one)
            else:
                await self._vectors.drop(one.post.id, one.post.rag_current, one.post.rag_chunks)

    async def _withdraw(self, one: Underway) -> None:
        """Another run has taken the article up, or it is gone and its id another one's. Points are named by
        version and number, and so may have been written over by this run."""
        one.lost = True
        if one.has_written and await self._standing.doubt(one.post):
            await self._vectors.drop(one.post.id, one.post.rag_version, len(one.chunks))

    async def _outcome(
        self, post_id: int, posts: Mapping[int, Post], work: Mapping[int, Underway]
    ) -> int | Failed:
        if post_id not in posts:
            await forget(self._posts, self._vectors, post_id)
            return 0
        if post_id not in work:
            return posts[post_id].rag_chunks
        one = work[post_id]
        if one.left and not one.lost:
            first = min(one.left) + 1
            return Failed(f"the provider gave no vector for chunk {first} of {len(one.chunks)}")
        return len(one.chunks)
