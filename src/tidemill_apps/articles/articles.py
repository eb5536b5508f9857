"""The application: its queues, pool, tasks, loops and schedule, on a Tidemill that is given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from typing import Any

from msgspec import UNSET, UnsetType

from tidemill import Context, Failed, Limit, Pool, QueueFull, Retention, Retry, Task, Tidemill, Unique
from tidemill.telemetry.events import JobDone, JobFailed, JobRetrying
from tidemill_apps.articles import upkeep
from tidemill_apps.articles.chunks import Chunking
from tidemill_apps.articles.embedding import Embedding
from tidemill_apps.articles.hurrying import hurry, waiting
from tidemill_apps.articles.metrics import Measures
from tidemill_apps.articles.minding import Minding
from tidemill_apps.articles.offering import offer
from tidemill_apps.articles.packing import Packing
from tidemill_apps.articles.posts import Changed, Post, Posts
from tidemill_apps.articles.provider import opened
from tidemill_apps.articles.qdrant import qdrant
from tidemill_apps.articles.requesting import CHANGED, Requests
from tidemill_apps.articles.searching import PATIENCE, Found, Searching
from tidemill_apps.articles.settings import ArticlesSettings
from tidemill_apps.articles.tables import posts_table
from tidemill_apps.articles.tokens import tokens_by
from tidemill_apps.articles.vectors import Vectors
from tidemill_apps.common.apart import keep_apart
from tidemill_apps.common.database import Database
from tidemill_apps.common.providers.chosen import EMBEDDING_MODELS

EMBED, REFRESH, REEMBED, QUERY = "articles:embed", "articles:refresh", "articles:reembed", "articles:query"
EMBEDDING, UPKEEP, SEARCH = "embedding", "article-upkeep", "article-search"
POOL = "embeddings"
DATABASE_URL = "ARTICLES_DATABASE_URL"
ATTEMPTS = 3
SHORT_LIVED = Retention(count=100)
"""Vectors of questions are asked for once."""

Loop = Callable[[], Coroutine[Any, Any, None]]


class Articles:
    """`queue` is where articles wait for their embedding. `loops` run as long as a worker does."""

    queue = EMBEDDING

    def __init__(self, app: Tidemill, settings: ArticlesSettings) -> None:
        keep_apart(app, settings.database_url, DATABASE_URL)
        self.app, self.settings = app, settings.checked()
        account = settings.embeddings
        self.simulated = not account.key and not account.base_url
        model = account.model or EMBEDDING_MODELS[account.provider]
        table = posts_table(settings.table)
        database = Database(settings.database_url, DATABASE_URL, ArticlesSettings().database_url)
        self.posts = Posts(database, table, lambda: app.entropy.new_id())  # noqa: PLW0108 - another's, while a test has moved the application
        client = qdrant(settings.qdrant_url, settings.qdrant_path, settings.qdrant_key)
        named = f"simulated {model}" if self.simulated or account.simulator else model
        self.vectors = Vectors(client, settings.collection, named)
        chunking = Chunking(tokens_by(settings.tokenizer), settings.chunk_tokens, settings.chunk_overlap)
        self.packing = Packing(chunking, settings.inputs_per_call, settings.tokens_per_call)
        self.measures = Measures(app)
        self.pool = self._declared()
        self.embed, self.refresh = self._embed_task(), self._refresh_task()
        self.requests = Requests(app, self.posts, self.packing, self.embed, self.refresh, queue=EMBEDDING)
        self.reembed = self._reembed_task()
        self._searching = Searching(app, self.posts, self.vectors, self._query_task(), POOL)
        self.minding = Minding(app, self.posts, self.vectors, self.requests, EMBED)
        self.loops: list[Loop] = [
            partial(self.minding.keep, settings.minding_seconds),
            partial(self.minding.keep_swept, settings.sweeping_seconds),
        ]
        self._measure()
        app.lifespan(self._lifespan)
        offer(self)

    async def create(self, title: str, content: str = "", hide: str = "0") -> Post:
        """A text is embedded soon; whoever writes it does not wait for that."""
        post = await self.posts.create(title, content, hide)
        if content:
            await self._send(post)
        return post

    async def change(
        self,
        post_id: int,
        *,
        title: str | UnsetType = UNSET,
        content: str | UnsetType = UNSET,
        hide: str | UnsetType = UNSET,
    ) -> Changed | None:
        """Another text is embedded; another title or hiding is only written to the vectors there are. None:
        there is no such article."""
        changed = await self.posts.change(post_id, title=title, content=content, hide=hide)
        if changed is not None and changed.text:
            await self._send(changed.post, changed.job)
        if changed is not None and changed.label and changed.post.rag_current:
            await self.requests.refresh_payload(post_id)
        return changed

    async def delete(self, post_id: int) -> bool:
        """The row at once, and with it what search finds; its vectors soon. False: there is none."""
        gone = await self.posts.delete(post_id)
        if gone:
            await self.requests.refresh_payload(post_id)
        return gone

    async def search(self, text: str, limit: int = 10) -> list[Found]:
        """The articles whose chunks are nearest to a question, hidden ones never."""
        return await self._searching.search(text, limit)

    async def close(self) -> None:
        """What this event loop has open. Everything opens again when it is used."""
        await self.vectors.close()
        await self.posts.database.close()

    async def _send(self, post: Post, before: str | None = None) -> None:
        """In a full queue the row waits for room: what was written is not refused for that. If its job
        `before` waits there, that one will do."""
        try:
            await self.requests.send([post], CHANGED)
        except QueueFull:
            if before and (found := await waiting(self.app, {post.id: before})):
                await hurry(self.app, found.values(), CHANGED)
                await self.posts.queued({post.id: before})

    def _declared(self) -> Pool:
        app, settings = self.app, self.settings
        app.queue(EMBEDDING, max_length=settings.queue_limit)
        app.queue(UPKEEP)
        app.queue(SEARCH, keep_done=SHORT_LIVED, keep_failed=SHORT_LIVED, keep_cancelled=SHORT_LIVED)
        limits = [Limit.concurrent(settings.concurrency)]
        if settings.requests_per_window:
            limits.append(Limit.requests(settings.requests_per_window, per=settings.window_seconds))
        if settings.tokens_per_window:
            limits.append(Limit.tokens(settings.tokens_per_window, per=settings.window_seconds))
        return app.pool(POOL, *limits, jitter=settings.jitter)

    def _embed_task(self) -> Task[[int], int]:
        settings = self.settings
        embedding = Embedding(
            self.posts,
            self.vectors,
            self.packing,
            self.measures,
            pool=self.pool,
            counts_tokens=bool(settings.tokens_per_window),
        )

        @self.app.batch_task(
            name=EMBED,
            queue=EMBEDDING,
            pool=self.pool,
            max_items=settings.inputs_per_call,
            max_units={"inputs": settings.inputs_per_call, "tokens": settings.tokens_per_call},
            item_cost={"inputs": 1, "tokens": settings.chunk_tokens},
            linger=settings.linger,
            unique=lambda post: Unique(f"post-{post}", on_conflict="rerun"),
            retry=Retry(
                attempts=ATTEMPTS,
                first=settings.retry_seconds,
                shape="fixed",
                jitter=0.02,
                priority_penalty=1,
            ),
            timeout=settings.timeout,
        )
        async def embed(ctx: Context, posts: list[int]) -> list[int | Failed]:
            return await embedding.run(ctx, ctx.state, posts)

        return embed

    def _refresh_task(self) -> Task[[int], bool]:
        @self.app.task(
            name=REFRESH,
            queue=UPKEEP,
            unique=lambda post: Unique(f"post-{post}", on_conflict="rerun"),
            timeout=self.settings.timeout,
        )
        async def refresh(post: int) -> bool:
            return await upkeep.refresh(self.posts, self.vectors, post)

        return refresh

    def _reembed_task(self) -> Task[..., int]:
        @self.app.task(name=REEMBED, queue=UPKEEP)
        async def reembed(after: int = 0) -> int:
            return await upkeep.reembed(self.requests, after, reembed.using(delay=upkeep.FULL).enqueue)

        if self.settings.nightly:
            upkeep.every_night(self.app, reembed, self.settings.nightly, self.settings.nightly_zone)
        return reembed

    def _query_task(self) -> Task[[str], list[float]]:
        counts_tokens, tokens = bool(self.settings.tokens_per_window), self.packing.chunking.tokens

        @self.app.task(
            name=QUERY,
            queue=SEARCH,
            priority=0,
            pool=self.pool,
            cost=lambda text: {"tokens": len(tokens(text))} if counts_tokens else {},
            retry=Retry(attempts=2, first=0.2),
            expires=PATIENCE,
            timeout=PATIENCE,
        )
        async def query(ctx: Context, text: str) -> list[float]:
            answer = await ctx.state.embed([text], mark=ctx.job_id)
            ctx.used(answer.response)
            self.measures.called(1)
            return upkeep.only_vector(answer)

        return query

    def _measure(self) -> None:
        @self.app.on(JobDone, JobRetrying, JobFailed)
        def ended(event: JobDone | JobRetrying | JobFailed) -> None:
            if event.task != EMBED:
                return
            if isinstance(event, JobDone):
                self.measures.embedded(event.seconds)
            else:
                self.measures.failed(final=isinstance(event, JobFailed))

    async def _lifespan(self) -> AsyncIterator[Any]:
        await self.posts.prepare()
        await asyncio.to_thread(import_module, "qdrant_client")  # a second: now, and not while somebody saves
        async with opened(self.settings, self.app.clock) as embeddings, running(self.loops):
            yield embeddings
        await self.close()


@asynccontextmanager
async def running(loops: list[Loop]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(loop()) for loop in loops]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
