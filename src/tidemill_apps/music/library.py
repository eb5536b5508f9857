"""The songs and how far each is, in the application's own database.

Whoever works on a song has it: `job_id` says which job, from the moment the job is made until the song's
outcome is written. Every write of a job is conditional on that. So a song is in one job at a time, a worker
that lost its job overwrites nothing, and a job that waits for its turn again (a refused call, a pool without
units, a retry) keeps its songs and is not sent a second time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import structlog
from sqlalchemy import ColumnElement, and_, case, func, insert, null, or_, select, tuple_, update

from tidemill_apps.common.column_types import Types, as_stored, types_there
from tidemill_apps.common.constraints import cannot_add, explained, unfilled
from tidemill_apps.common.database import Database
from tidemill_apps.music import tables
from tidemill_apps.music.outcomes import Outcome, before_processing, columns_of
from tidemill_apps.music.rows import (
    ARTIST,
    AT_ONCE,
    SHOWN,
    THERE,
    TITLE,
    WAITING,
    held,
    listed,
    of_job,
    pieces,
    stored_in,
    was,
)
from tidemill_apps.music.songs import Failure, Song, Status, Stored, Track
from tidemill_apps.music.tables import songs, storable
from tidemill_apps.music.upserts import compared
from tidemill_apps.music.vectors import FLOAT_BYTES

log = structlog.get_logger("tidemill_apps.music")

WHAT = "song"
REASONS_SHOWN = 5
VECTORS_SAMPLED = 100


class Library:
    """`wall` is the time, in seconds."""

    def __init__(self, database: Database, wall: Callable[[], float]) -> None:
        self.database, self._wall = database, wall
        self._types: Types = {}

    async def prepare(self) -> None:
        """Creates missing tables and columns. A song without a status is pending. A song that another program
        completed without a vector waits for a start: no search would find it."""
        await self.database.prepare(tables.metadata)
        await self._look_at_table()
        nobody_said = update(songs).where(songs.c.status.is_(None))
        await self._settle(nobody_said.values(status=Status.PENDING.value))
        without = and_(
            songs.c.status == Status.COMPLETED.value, func.coalesce(func.length(songs.c.vector), 0) == 0
        )
        described = func.coalesce(songs.c.description, "") != ""
        status = case((described, Status.DESCRIBED.value), else_=Status.PENDING.value)
        await self._settle(update(songs).where(without).values(status=status, job_id=null()))

    async def _look_at_table(self) -> None:
        async with self.database.reading() as connection:
            self._types = await connection.run_sync(types_there, songs)
            missing = await connection.run_sync(unfilled, songs)
        if missing:
            log.warning("songs_cannot_be_added", problem=cannot_add(songs, missing, WHAT))

    async def upsert(self, tracks: Sequence[Track]) -> tuple[int, int]:
        """A page of the music server's songs. Answers how many were new, and how many changed. One whose
        title or artist changed is pending again."""
        async with explained(self.database, songs, WHAT), self.database.transaction() as connection:
            page = compared(tracks, await listed(connection, tracks))
            if page.new:
                await connection.execute(
                    insert(songs), [{**new, "changed_at": self.now()} for new in page.new]
                )
            for navidrome_id, values in page.changed.items():
                one = update(songs).where(songs.c.navidrome_id == navidrome_id)
                await connection.execute(one.values({**values, "changed_at": self.now()}))
        return len(page.new), len(page.changed)

    async def foresee(self, tracks: Sequence[Track]) -> int:
        """How many songs more would be pending after `upsert` of that page. Nothing is written."""
        async with self.database.reading() as connection:
            there = await listed(connection, tracks)
        page = compared(tracks, there)
        free = {id_ for id_, row in there.items() if (row["status"], row["job_id"]) == (Status.PENDING, None)}
        wait = {id_ for id_ in free if there[id_]["gone_at"] is None}
        will = free | {id_ for id_, values in page.changed.items() if "status" in values}
        return len(page.new) + len(will - wait)

    async def hide(self, navidrome_ids: Sequence[str]) -> int:
        """They are gone from the music server. All that is known of them stays."""
        now = self.now()
        async with self.database.transaction() as connection:
            for some in pieces(navidrome_ids):
                these = update(songs).where(songs.c.navidrome_id.in_(some))
                await connection.execute(these.values(gone_at=now, changed_at=now))
        return len(navidrome_ids)

    # What there is

    async def pending(self, limit: int | None = None, *, out_since: int | None = None) -> list[Song]:
        """Those no job has, the longest untouched first. `out_since`: only those that were left out of one
        answer, and not before that."""
        return await self._free(Status.PENDING, limit, out_since)

    async def described_without_vector(
        self, limit: int | None = None, *, out_since: int | None = None
    ) -> list[Song]:
        """Likewise."""
        return await self._free(Status.DESCRIBED, limit, out_since)

    async def left_out(self, since: int | None = None) -> int:
        """How many wait that an answer has left out, or malformed, and no job has. `since`: as above."""
        query = select(func.count()).where(songs.c.status.in_(WAITING), songs.c.job_id.is_(None), THERE)
        meant = songs.c.tries > 0 if since is None else _out_once(since)
        async with self.database.reading() as connection:
            return int((await connection.execute(query.where(meant))).scalar_one())

    async def failures(self) -> list[Failure]:
        """Why songs failed, the commonest reasons first, and not all of them where there are many."""
        reason, number = func.coalesce(songs.c.last_error, ""), func.count().label("number")
        query = select(reason, number).where(songs.c.status == Status.FAILED.value, THERE).group_by(reason)
        async with self.database.reading() as connection:
            rows = await connection.execute(query.order_by(number.desc(), reason).limit(REASONS_SHOWN))
            return [Failure(*row) for row in rows.all()]

    async def jobs_with_errors(self) -> list[str]:
        """Jobs that have songs of which an attempt or an answer said something, and not all where there are
        many: few among thousands that wait."""
        query = select(songs.c.job_id).where(held(), songs.c.last_error.is_not(None), THERE).distinct()
        async with self.database.reading() as connection:
            found = (await connection.execute(query.limit(AT_ONCE))).scalars()
            return [job_id for job_id in found if job_id is not None]

    async def waiting(self, status: Status, *, untried: bool = False) -> int:
        """How many of that status no job has. `untried`: without those that an answer has left out."""
        query = select(func.count()).where(songs.c.status == status.value, songs.c.job_id.is_(None), THERE)
        if untried:
            query = query.where(func.coalesce(songs.c.tries, 0) == 0)
        async with self.database.reading() as connection:
            return int((await connection.execute(query)).scalar_one())

    async def counts(self) -> dict[Status, int]:
        query = select(songs.c.status, func.count().label("number")).where(THERE).group_by(songs.c.status)
        async with self.database.reading() as connection:
            found = {row.status: row.number for row in (await connection.execute(query)).all()}
        return {status: found.get(status.value, 0) for status in Status}

    async def vector_length(self) -> int | None:
        """How many numbers most vectors have, by a sample; None without vectors."""
        sample = select(func.length(songs.c.vector)).where(songs.c.status == Status.COMPLETED.value, THERE)
        async with self.database.reading() as connection:
            sizes = (await connection.execute(sample.limit(VECTORS_SAMPLED))).scalars()
            lengths = Counter(size // FLOAT_BYTES for size in sizes if size)
        return lengths.most_common(1)[0][0] if lengths else None

    async def song(self, navidrome_id: str) -> Stored | None:
        return next(iter(await self.stored([navidrome_id])), None)

    async def stored(self, navidrome_ids: Sequence[str]) -> list[Stored]:
        """Those that are there, in the order asked for."""
        found: dict[str, Stored] = {}
        async with self.database.reading() as connection:
            for some in pieces(navidrome_ids):
                query = select(*SHOWN).where(songs.c.navidrome_id.in_(some))
                found |= {row.navidrome_id: stored_in(row) for row in (await connection.execute(query)).all()}
        return [found[id_] for id_ in navidrome_ids if id_ in found]

    async def have(self, batch: Sequence[Song], *statuses: Status) -> int:
        """How many of them are that far."""
        rows = await self.stored([song.navidrome_id for song in batch])
        return sum(row.status in statuses for row in rows)

    async def left_processing(self) -> dict[str | None, list[str]]:
        """The songs of each job that has some. Those under None are PROCESSING and nobody's: a program that
        knew nothing of jobs left them so."""
        query = select(songs.c.job_id, songs.c.navidrome_id).where(held())
        by_job: dict[str | None, list[str]] = {}
        async with self.database.reading() as connection:
            for job_id, navidrome_id in (await connection.execute(query)).all():
                by_job.setdefault(job_id, []).append(navidrome_id)
        return by_job

    # Who has them

    async def mark_queued(self, jobs: Mapping[str, Iterable[str]]) -> None:
        """These jobs are about to be enqueued with these songs. Mark first, then enqueue: a song that is
        marked for a job that never came is found and released; one that is in two jobs is paid for twice."""
        async with self.database.transaction() as connection:
            for job_id, ids in jobs.items():
                free = and_(songs.c.status.in_(WAITING), songs.c.job_id.is_(None), THERE)
                for some in pieces(list(ids)):
                    await connection.execute(
                        update(songs).where(songs.c.navidrome_id.in_(some), free).values(job_id=job_id)
                    )

    async def mark_processing(
        self, batch: Sequence[Song], job_id: str, *, of: Sequence[Status] = WAITING
    ) -> list[Song]:
        """In one transaction. Answers which of them the job has now: not those that another has, that are
        done or gone, or whose title or artist is another by now. A job that runs again gets its own back."""
        mine = and_(songs.c.job_id == job_id, songs.c.status.in_((*of, Status.PROCESSING, Status.FAILED)))
        free = and_(songs.c.job_id.is_(None), songs.c.status.in_(of))
        before = case((songs.c.status.in_(WAITING), songs.c.status), else_=songs.c.previous_status)
        values = {"status": Status.PROCESSING, "previous_status": before, "job_id": job_id}
        taken: set[str] = set()
        async with self.database.transaction() as connection:
            for some in pieces(batch):
                same = tuple_(songs.c.navidrome_id, TITLE, ARTIST).in_(
                    [(song.navidrome_id, song.title, song.artist) for song in some]
                )
                marked = update(songs).where(same, THERE, or_(mine, free)).values(values)
                rows = await connection.execute(marked.returning(songs.c.navidrome_id))
                taken |= set(rows.scalars())
        return [song for song in batch if song.navidrome_id in taken]

    async def wait(self, job_id: str, error: str = "") -> None:
        """The job's attempt ended, with that error, and its songs wait for the next one, which is the same
        job's."""
        of_job = and_(songs.c.job_id == job_id, songs.c.status == Status.PROCESSING.value)
        why = {"last_error": storable(error)} if error else {}
        await self._settle(update(songs).where(of_job).values({"status": before_processing(), **why}))

    async def release(self, *job_ids: str | None) -> int:
        """The jobs are over and their songs are as they were before, in one transaction. Answers how many.
        None: those that are PROCESSING and nobody's."""
        released = update(songs).where(held()).values({"status": was(), "job_id": null()})
        whose = [songs.c.job_id.in_(some) for some in pieces([id_ for id_ in job_ids if id_ is not None])]
        if None in job_ids:
            whose.append(songs.c.job_id.is_(None))
        async with self.database.transaction() as connection:
            return sum([(await connection.execute(released.where(theirs))).rowcount for theirs in whose])

    async def fail(self, job_id: str | None, error: str, answer: str | None = None) -> int:
        """The job failed for good, and with it those songs it still has. `answer` is kept for debugging."""
        values = {
            "status": Status.FAILED.value,
            "previous_status": was(),
            "last_error": storable(error),
            "kept_answer": None if answer is None else storable(answer),
            "changed_at": self.now(),
        }
        return await self._settle(update(songs).where(of_job(job_id), held()).values(values))

    async def retry_failed(self, *, but: Sequence[str] = ()) -> int:
        """For a person who has mended what made them fail: they wait again, with all their tries. Those that
        the jobs `but` have stay theirs."""
        values = {"status": before_processing(), "job_id": null(), "tries": 0, "changed_at": self.now()}
        failed = update(songs).where(songs.c.status == Status.FAILED.value).values(values)
        for some in pieces(but):
            failed = failed.where(or_(songs.c.job_id.is_(None), songs.c.job_id.not_in(some)))
        return await self._settle(failed)

    async def failed_jobs(self) -> list[str]:
        """Those whose songs failed."""
        query = select(songs.c.job_id).where(songs.c.status == Status.FAILED.value).distinct()
        async with self.database.reading() as connection:
            return [job_id for job_id in (await connection.execute(query)).scalars() if job_id is not None]

    async def await_jobs(self, job_ids: Sequence[str]) -> int:
        """These come again: their songs that failed wait for them."""
        values = {"status": before_processing(), "tries": 0, "changed_at": self.now()}
        failed = update(songs).where(songs.c.status == Status.FAILED.value).values(values)
        async with self.database.transaction() as connection:
            done = [
                await connection.execute(failed.where(songs.c.job_id.in_(some))) for some in pieces(job_ids)
            ]
        return sum(one.rowcount for one in done)

    # What was found out

    async def save(self, job_id: str, outcomes: Iterable[Outcome]) -> None:
        """In one commit, for those songs the job still has. One that was taken for failed with it, by who saw
        the job fail and not that a person retried it, is its own all the same."""
        mine = and_(songs.c.job_id == job_id, songs.c.status != Status.COMPLETED.value)
        async with self.database.transaction() as connection:
            for outcome in outcomes:
                one = update(songs).where(songs.c.navidrome_id == outcome.navidrome_id, mine)
                values = {**as_stored(columns_of(outcome), self._types), "changed_at": self.now()}
                await connection.execute(one.values(values))

    async def _free(self, status: Status, limit: int | None, out_since: int | None) -> list[Song]:
        query = (
            select(songs.c.navidrome_id, TITLE, ARTIST)
            .where(songs.c.status == status.value, songs.c.job_id.is_(None), THERE)
            .order_by(func.coalesce(songs.c.changed_at, 0), songs.c.navidrome_id)
            .limit(limit)
        )
        if out_since is not None:
            query = query.where(_out_once(out_since))
        async with self.database.reading() as connection:
            return [Song(*row) for row in (await connection.execute(query)).all()]

    async def _settle(self, statement: Any) -> int:
        async with self.database.transaction() as connection:
            return int((await connection.execute(statement)).rowcount)

    def now(self) -> int:
        """In milliseconds."""
        return int(self._wall() * 1000)


def _out_once(since: int) -> ColumnElement[bool]:
    return and_(songs.c.tries == 1, songs.c.changed_at >= since)
