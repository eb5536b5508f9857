"""Reads and writes the rows of podcasts, their parts and their feeds."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterable

import msgspec
from sqlalchemy import ColumnElement, and_, delete, func, insert, select, update

from tidemill_apps.common.database import Database, slice_items
from tidemill_apps.podcasts.tables import (
    FinishedEpisode,
    NewPodcast,
    Podcast,
    PodcastFeed,
    PodcastStatus,
    metadata,
    parse_podcast,
    podcast_feeds,
    podcast_parts,
    podcasts,
)

MAX_LISTED = 200
TEXT_START = func.substr(podcasts.c.text, 1, 2000)
UNFINISHED_STATUSES = (PodcastStatus.PENDING.value, PodcastStatus.PROCESSING.value)


class Episodes:
    """Podcast rows. `wall` returns the wall time, and `new_id` a new job id."""

    def __init__(self, database: Database, wall: Callable[[], float], new_id: Callable[[], str]) -> None:
        self.database, self._wall, self._new_id = database, wall, new_id
        self._prepared = False

    async def prepare(self) -> None:
        """Creates the missing tables and columns. Only the first call does this."""
        if not self._prepared:
            await self.database.prepare(metadata)
            self._prepared = True

    async def get(self, podcast_id: int) -> Podcast | None:
        return next(iter(await self._load(podcasts.c.id == podcast_id, text=podcasts.c.text)), None)

    async def load_recent(self, limit: int = MAX_LISTED) -> list[Podcast]:
        """Returns up to `limit` podcasts, the newest first."""
        return await self._load(podcasts.c.id > 0, limit)

    async def load_published(self, limit: int = MAX_LISTED) -> list[Podcast]:
        """Returns up to `limit` podcasts with a complete audio file, the newest first. A podcast that is
        being generated again still has its former file."""
        return await self._load(podcasts.c.audio_key.is_not(None), limit)

    async def load_unfinished(self) -> list[Podcast]:
        return await self._load(podcasts.c.status.in_(UNFINISHED_STATUSES))

    async def create(self, new: NewPodcast) -> Podcast:
        """Creates a pending podcast. Its row names the job; the reconciler enqueues a missing job."""
        await self.prepare()
        async with self.database.transaction() as connection:
            made = await connection.execute(
                insert(podcasts).values(
                    **msgspec.structs.asdict(new),
                    guid=str(uuid.uuid4()),
                    status=PodcastStatus.PENDING.value,
                    job_id=self._new_id(),
                    created_at=self._wall(),
                )
            )
            [podcast_id] = made.inserted_primary_key or (0,)
        return await self._existing(int(podcast_id))

    async def request(self, podcast_id: int) -> Podcast | None:
        """Marks a podcast as pending, with a new job id. A podcast that waits or runs does not change.
        Returns None if it does not exist."""
        fresh: dict[str, object] = {"status": PodcastStatus.PENDING.value, "error": None}
        await self._update(
            and_(podcasts.c.id == podcast_id, podcasts.c.status.not_in(UNFINISHED_STATUSES)),
            {**fresh, "job_id": self._new_id(), "regenerate_at": None},
        )
        return await self.get(podcast_id)

    async def set_job(self, podcast: Podcast, job_id: str) -> None:
        await self._update(
            and_(podcasts.c.id == podcast.id, podcasts.c.job_id == podcast.job_id), {"job_id": job_id}
        )

    async def begin(self, podcast_id: int, job_id: str) -> Podcast | None:
        """Marks a podcast as processing by the job. Returns None if it was deleted or is done already."""
        condition = and_(podcasts.c.id == podcast_id, podcasts.c.status != PodcastStatus.DONE.value)
        values: dict[str, object] = {"status": PodcastStatus.PROCESSING.value, "job_id": job_id}
        return (
            await self.get(podcast_id)
            if await self._update(condition, {**values, "regenerate_at": None})
            else None
        )

    async def finish(self, podcast_id: int, job_id: str, finished: FinishedEpisode) -> bool:
        """Publishes the episode. Returns False if the podcast was deleted or another job has taken over."""
        published = func.coalesce(podcasts.c.published_at, self._wall())
        values = {**msgspec.structs.asdict(finished), "published_at": published, "error": None}
        return await self._update(
            and_(podcasts.c.id == podcast_id, podcasts.c.job_id == job_id),
            {**values, "status": PodcastStatus.DONE.value},
        )

    async def fail(self, podcast: Podcast, error: str, regenerate_at: float | None, next_job: str) -> bool:
        """Marks a podcast as failed. With `regenerate_at` the row gets the id of the job that generates the
        podcast once more. Returns False if the row has changed meanwhile."""
        values: dict[str, object] = {"status": PodcastStatus.FAILED.value, "error": error.replace("\0", "")}
        if regenerate_at is not None:
            values |= {"regenerations": 1, "regenerate_at": regenerate_at, "job_id": next_job}
        return await self._update(
            and_(podcasts.c.id == podcast.id, podcasts.c.job_id == podcast.job_id), values
        )

    async def delete(self, podcast_id: int) -> list[str] | None:
        """Deletes a podcast. Returns the digests of the parts that no other podcast uses, or None if the
        podcast does not exist."""
        await self.prepare()
        used, other = podcast_parts, podcast_parts.alias()
        async with self.database.transaction() as connection:
            if not (await connection.execute(delete(podcasts).where(podcasts.c.id == podcast_id))).rowcount:
                return None
            shared = select(other.c.digest).where(other.c.podcast_id != podcast_id)
            query = select(used.c.digest).where(used.c.podcast_id == podcast_id, used.c.digest.not_in(shared))
            unused = list((await connection.execute(query)).scalars())
            await connection.execute(delete(used).where(used.c.podcast_id == podcast_id))
            return unused

    async def register_parts(self, podcast_id: int, digests: Iterable[str]) -> None:
        """Records the parts that a podcast uses, so that the deletion of another podcast leaves them."""
        wanted = sorted(set(digests))
        async with self.database.transaction() as connection:
            query = select(podcast_parts.c.digest).where(podcast_parts.c.podcast_id == podcast_id)
            known = set((await connection.execute(query)).scalars())
            rows = [{"podcast_id": podcast_id, "digest": one} for one in wanted if one not in known]
            for some in slice_items(rows):
                await connection.execute(insert(podcast_parts), list(some))

    async def record_cost(self, podcast_id: int, digest: str, cost: float) -> None:
        """Records the cost of a part before its call, because the call is paid for even if the process
        dies."""
        condition = and_(podcast_parts.c.podcast_id == podcast_id, podcast_parts.c.digest == digest)
        async with self.database.transaction() as connection:
            await connection.execute(update(podcast_parts).where(condition).values(cost=cost))

    async def create_feed(self, name: str, token: str) -> PodcastFeed:
        await self.prepare()
        values = {"name": name, "token_hash": hash_token(token), "created_at": self._wall()}
        async with self.database.transaction() as connection:
            await connection.execute(insert(podcast_feeds).values(**values))
        feed = await self.find_feed(token)
        assert feed is not None  # noqa: S101 - it was inserted above
        return feed

    async def find_feed(self, token: str) -> PodcastFeed | None:
        """Returns the feed of the token, None if there is none or it was revoked."""
        known = podcast_feeds.c.token_hash == hash_token(token)
        return next(iter(await self._load_feeds(and_(known, podcast_feeds.c.revoked_at.is_(None)))), None)

    async def load_feeds(self) -> list[PodcastFeed]:
        return await self._load_feeds(podcast_feeds.c.revoked_at.is_(None))

    async def revoke_feed(self, feed_id: int) -> bool:
        """Revokes a feed. Returns False if there is none or it was revoked before."""
        await self.prepare()
        condition = and_(podcast_feeds.c.id == feed_id, podcast_feeds.c.revoked_at.is_(None))
        async with self.database.transaction() as connection:
            changed = update(podcast_feeds).where(condition).values(revoked_at=self._wall())
            return bool((await connection.execute(changed)).rowcount)

    async def _load(
        self, where: ColumnElement[bool], limit: int | None = None, text: ColumnElement[str] = TEXT_START
    ) -> list[Podcast]:
        """Returns podcasts, the newest first. Lists read only the beginning of each text."""
        await self.prepare()
        paid = select(func.sum(podcast_parts.c.cost)).where(podcast_parts.c.podcast_id == podcasts.c.id)
        columns = [column for column in podcasts.c if column.name != "text"]
        query = select(*columns, text.label("text"), paid.scalar_subquery().label("cost")).where(where)
        async with self.database.reading() as connection:
            rows = await connection.execute(query.order_by(podcasts.c.id.desc()).limit(limit))
            return [parse_podcast(row) for row in rows.mappings()]

    async def _load_feeds(self, where: ColumnElement[bool]) -> list[PodcastFeed]:
        await self.prepare()
        columns = [podcast_feeds.c[name] for name in PodcastFeed.__struct_fields__]
        async with self.database.reading() as connection:
            rows = await connection.execute(select(*columns).where(where).order_by(podcast_feeds.c.id))
            return [PodcastFeed(**row) for row in rows.mappings()]

    async def _existing(self, podcast_id: int) -> Podcast:
        found = await self.get(podcast_id)
        assert found is not None  # noqa: S101 - the caller has just written it
        return found

    async def _update(self, where: ColumnElement[bool], values: dict[str, object]) -> bool:
        await self.prepare()
        async with self.database.transaction() as connection:
            return bool((await connection.execute(update(podcasts).where(where).values(**values))).rowcount)


def hash_token(token: str) -> str:
    """Returns the stored form of a feed token. A token has 128 random bits, so a plain hash is enough."""
    return hashlib.sha256(token.encode()).hexdigest()
