"""The class `Articles`. It declares the queues, the pool, the tasks and the periodic functions. Its
methods create, change, delete and search articles."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec import UNSET, UnsetType

from tidemill import Context, FailedItem, Limit, Pool, QueueFull, Retention, Retry, Task, Tidemill, Unique
from tidemill.telemetry.events import JobDone, JobFailed, JobRetrying
from tidemill.testing.simulator import Clock, Quota, SimulatorOptions
from tidemill_apps.articles import tasks as articles_tasks
from tidemill_apps.articles.chunks import CallPacker, Chunker, load_tokenizer
from tidemill_apps.articles.embed_requests import (
    CHANGED_PRIORITY,
    EmbeddingRequests,
    filter_waiting_jobs,
    reprioritise_jobs,
)
from tidemill_apps.articles.metrics import ArticleMetrics
from tidemill_apps.articles.posts import Post, Posts, PostUpdate, create_posts_table
from tidemill_apps.articles.qdrant import open_qdrant
from tidemill_apps.articles.reconciler import PostReconciler
from tidemill_apps.articles.search import SEARCH_DEADLINE_SECONDS, ArticleMatch, ArticleSearch
from tidemill_apps.articles.settings import ArticlesSettings
from tidemill_apps.articles.tasks import BatchEmbedder
from tidemill_apps.articles.vectors import ArticleVectors
from tidemill_apps.common.database import Database, check_separate_files
from tidemill_apps.common.messages import MessageCatalogue
from tidemill_apps.common.model_clients import EmbeddingModel
from tidemill_apps.common.providers import (
    DEFAULT_EMBEDDING_MODELS,
    open_embedding_model,
    run_simulator,
    use_simulator,
)

MINUTE_SECONDS = 60.0
SIMULATED_LATENCY_SECONDS = (0.1, 0.4)


@asynccontextmanager
async def open_embeddings(settings: ArticlesSettings, clock: Clock) -> AsyncIterator[EmbeddingModel]:
    account = settings.embeddings
    async with AsyncExitStack() as stack:
        if account.needs_simulator:
            server = await stack.enter_async_context(
                run_simulator(
                    account.provider,
                    _build_simulated_quotas(settings),
                    clock=clock,
                    options=SimulatorOptions(latency=SIMULATED_LATENCY_SECONDS),
                    scale=MINUTE_SECONDS / settings.window_seconds,
                )
            )
            account = use_simulator(account, server.url)
        made = open_embedding_model(account)
        stack.push_async_callback(made.close)
        yield made


def _build_simulated_quotas(settings: ArticlesSettings) -> list[Quota]:
    """Returns simulated quotas equal to the configured limits."""
    found = [Quota.rolling("requests", settings.requests_per_window)] if settings.requests_per_window else []
    if settings.tokens_per_window:
        found.append(Quota.rolling("tokens", settings.tokens_per_window))
    return found


EMBED_TASK, REFRESH_TASK, REEMBED_TASK, QUERY_TASK = (
    "articles:embed",
    "articles:refresh",
    "articles:reembed",
    "articles:query",
)
EMBEDDING_QUEUE, MAINTENANCE_QUEUE, SEARCH_QUEUE = "embedding", "article-maintenance", "article-search"
EMBEDDINGS_POOL = "embeddings"
DATABASE_VARIABLE = "ARTICLES_DATABASE_URL"
MESSAGES = MessageCatalogue(Path(__file__).with_name("locales"))
MAX_ATTEMPTS = 3
SHORT_RETENTION = Retention(count=100)
"""Question vectors are read once, by the request that waits for them."""


class Articles:
    """The articles application on the Tidemill object `app`. `queue` is the name of the queue in which
    articles wait for embedding."""

    queue = EMBEDDING_QUEUE

    def __init__(self, app: Tidemill, settings: ArticlesSettings) -> None:
        check_separate_files(app, settings.database_url, DATABASE_VARIABLE)
        self.app, self.settings = app, settings.checked()
        account = settings.embeddings
        self.simulated = account.needs_simulator
        model = account.model or DEFAULT_EMBEDDING_MODELS[account.provider]
        table = create_posts_table(settings.table)
        database = Database(settings.database_url, DATABASE_VARIABLE, ArticlesSettings().database_url)
        self.posts = Posts(database, table, lambda: app.entropy.new_id())  # noqa: PLW0108 - a test may replace app.entropy
        client = open_qdrant(settings.qdrant_url, settings.qdrant_path, settings.qdrant_key)
        named = f"simulated {model}" if self.simulated or account.simulator else model
        self.vectors = ArticleVectors(client, settings.collection, named)
        chunker = Chunker(load_tokenizer(settings.tokenizer), settings.chunk_tokens, settings.chunk_overlap)
        self.packer = CallPacker(chunker, settings.inputs_per_call, settings.tokens_per_call)
        self.metrics = ArticleMetrics(app)
        self.pool = self._declare_pool()
        self.embed, self.refresh = self._embed_task(), self._refresh_task()
        self.requests = EmbeddingRequests(
            app, self.posts, self.packer, self.embed, self.refresh, queue=EMBEDDING_QUEUE
        )
        self.reembed = self._reembed_task()
        self._search = ArticleSearch(app, self.posts, self.vectors, self._query_task())
        self.reconciler = PostReconciler(app, self.posts, self.vectors, self.requests, EMBED_TASK)
        self.reconciler.declare_periodics(settings.reconcile_seconds, settings.sweep_seconds)
        self._count_outcomes()
        app.lifespan(self._lifespan)

    async def create(self, title: str, content: str = "", hide: str = "0") -> Post:
        """Creates an article and enqueues the embedding of its text. `hide` is '1' for a hidden article."""
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
    ) -> PostUpdate | None:
        """Changes the given fields of an article; returns None if the article does not exist. A new text is
        embedded in the background. A new title or visibility causes no provider call."""
        changed = await self.posts.change(post_id, title=title, content=content, hide=hide)
        if changed is not None and changed.text:
            await self._send(changed.post, changed.job)
        if changed is not None and changed.label and changed.post.rag_current:
            await self.requests.refresh_payload(post_id)
        return changed

    async def delete(self, post_id: int) -> bool:
        """Deletes the article's row, so that search no longer finds the article. A job deletes the vectors
        later. Returns False if the article does not exist."""
        gone = await self.posts.delete(post_id)
        if gone:
            await self.requests.refresh_payload(post_id)
        return gone

    async def search(self, text: str, limit: int = 10) -> list[ArticleMatch]:
        """Returns the visible articles whose chunks are nearest to the question."""
        return await self._search.search(text, limit)

    async def close(self) -> None:
        """Closes the connections of the running event loop. The next use opens them again."""
        await self.vectors.close()
        await self.posts.database.close()

    async def _send(self, post: Post, before: str | None = None) -> None:
        """Enqueues the embedding of the article; if the queue is full, this happens later. `before` is the id
        of an earlier job. If that job still waits, it will embed the new text."""
        try:
            await self.requests.send([post], CHANGED_PRIORITY)
        except QueueFull:
            if before and (found := await filter_waiting_jobs(self.app, {post.id: before})):
                await reprioritise_jobs(self.app, found.values(), CHANGED_PRIORITY)
                await self.posts.set_jobs({post.id: before})

    def _declare_pool(self) -> Pool:
        app, settings = self.app, self.settings
        app.queue(EMBEDDING_QUEUE, max_length=settings.queue_limit)
        app.queue(MAINTENANCE_QUEUE)
        app.queue(
            SEARCH_QUEUE,
            keep_done=SHORT_RETENTION,
            keep_failed=SHORT_RETENTION,
            keep_cancelled=SHORT_RETENTION,
        )
        limits = [Limit.concurrent(settings.concurrency)]
        if settings.requests_per_window:
            limits.append(Limit.requests(settings.requests_per_window, per=settings.window_seconds))
        if settings.tokens_per_window:
            limits.append(Limit.tokens(settings.tokens_per_window, per=settings.window_seconds))
        return app.pool(EMBEDDINGS_POOL, *limits, jitter=settings.jitter)

    def _embed_task(self) -> Task[[int], int]:
        settings = self.settings
        embedding = BatchEmbedder(
            self.posts,
            self.vectors,
            self.packer,
            self.metrics,
            pool=self.pool,
            counts_tokens=bool(settings.tokens_per_window),
        )

        @self.app.batch_task(
            name=EMBED_TASK,
            queue=EMBEDDING_QUEUE,
            pool=self.pool,
            max_items=settings.inputs_per_call,
            max_units={"inputs": settings.inputs_per_call, "tokens": settings.tokens_per_call},
            item_cost={"inputs": 1, "tokens": settings.chunk_tokens},
            linger=settings.linger,
            unique=lambda post: Unique(f"post-{post}", on_conflict="rerun"),
            retry=Retry(
                attempts=MAX_ATTEMPTS,
                first=settings.retry_seconds,
                shape="fixed",
                jitter=0.02,
                priority_penalty=1,
            ),
            timeout=settings.timeout,
        )
        async def embed(ctx: Context, posts: list[int]) -> list[int | FailedItem]:
            return await embedding.run(ctx, ctx.state, posts)

        return embed

    def _refresh_task(self) -> Task[[int], bool]:
        @self.app.task(
            name=REFRESH_TASK,
            queue=MAINTENANCE_QUEUE,
            unique=lambda post: Unique(f"post-{post}", on_conflict="rerun"),
            timeout=self.settings.timeout,
        )
        async def refresh(post: int) -> bool:
            return await articles_tasks.refresh_payload(self.posts, self.vectors, post)

        return refresh

    def _reembed_task(self) -> Task[..., int]:
        @self.app.task(name=REEMBED_TASK, queue=MAINTENANCE_QUEUE)
        async def reembed(after: int = 0) -> int:
            return await articles_tasks.reembed_all(
                self.requests, after, reembed.using(delay=articles_tasks.QUEUE_FULL_RETRY_SECONDS).enqueue
            )

        if self.settings.nightly:
            articles_tasks.schedule_nightly(
                self.app, reembed, self.settings.nightly, self.settings.nightly_zone
            )
        return reembed

    def _query_task(self) -> Task[[str], list[float]]:
        counts_tokens, tokens = bool(self.settings.tokens_per_window), self.packer.chunker.tokens

        @self.app.task(
            name=QUERY_TASK,
            queue=SEARCH_QUEUE,
            pool=self.pool,
            cost=lambda text: {"tokens": len(tokens(text))} if counts_tokens else {},
            retry=Retry(attempts=2, first=0.2),
            timeout=SEARCH_DEADLINE_SECONDS,
        )
        async def query(ctx: Context, text: str) -> list[float]:
            answer = await ctx.state.embed([text], call_id=ctx.job_id)
            ctx.used(answer.response)
            self.metrics.count_called(1)
            return articles_tasks.get_single_vector(answer)

        return query

    def _count_outcomes(self) -> None:
        @self.app.on(JobDone, JobRetrying, JobFailed)
        def count_outcome(event: JobDone | JobRetrying | JobFailed) -> None:
            if event.task != EMBED_TASK:
                return
            if isinstance(event, JobDone):
                self.metrics.count_embedded(event.seconds)
            else:
                self.metrics.count_failed(final=isinstance(event, JobFailed))

    async def _lifespan(self) -> AsyncIterator[Any]:
        await self.posts.prepare()
        await asyncio.to_thread(
            import_module, "qdrant_client"
        )  # takes a second: load it now, not during a save
        async with open_embeddings(self.settings, self.app.clock) as embeddings:
            yield embeddings
        await self.close()
