"""The song table. It stores each song's status, its current job and its results.

`job_id` names the job that holds a song, from the moment the job is planned. Every write of a job checks
`job_id`. So a song is in one job at a time, and a worker that lost its job overwrites nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import structlog
from sqlalchemy import ColumnElement, and_, case, func, insert, null, or_, select, tuple_, update

from tidemill_apps.common.database import (
    MAX_IDS_PER_STATEMENT,
    Database,
    explain_refused_rows,
    find_unfillable_columns,
    format_cannot_add,
    slice_items,
)
from tidemill_apps.common.existing_tables import ColumnTypes, cast_values, load_column_types
from tidemill_apps.common.live_settings import KeyValueTable
from tidemill_apps.music.tables import (
    ARTIST,
    BYTES_PER_FLOAT,
    IS_LISTED,
    ROW_COLUMNS,
    TITLE,
    WAITING_STATUSES,
    Song,
    SongFailureCount,
    SongOutcome,
    SongRow,
    SongStatus,
    Track,
    belongs_to_job,
    compare_tracks,
    is_held_by_job,
    load_sync_rows,
    metadata,
    outcome_columns,
    parse_song_row,
    songs,
    status_before_job,
    status_before_processing,
    strip_nul,
    system_settings,
)

log = structlog.get_logger("tidemill_apps.music")

ROW_NOUN = "song"
MAX_FAILURE_REASONS = 5
VECTOR_SAMPLE_SIZE = 100


class Library:
    """Reads and writes songs in the database. `wall` returns the wall time in seconds. `flags` stores single
    values, such as the start time of a run."""

    def __init__(self, database: Database, wall: Callable[[], float]) -> None:
        self.database, self._wall = database, wall
        self.flags = KeyValueTable(database, system_settings)
        self._types: ColumnTypes = {}

    async def prepare(self) -> None:
        """Creates missing tables and columns, and repairs rows that another program wrote."""
        await self.database.prepare(metadata)
        await self._check_table()
        without_status = update(songs).where(songs.c.status.is_(None))
        await self._execute(without_status.values(status=SongStatus.PENDING.value))
        without = and_(
            songs.c.status == SongStatus.COMPLETED.value, func.coalesce(func.length(songs.c.vector), 0) == 0
        )
        described = func.coalesce(songs.c.description, "") != ""
        status = case((described, SongStatus.DESCRIBED.value), else_=SongStatus.PENDING.value)
        await self._execute(update(songs).where(without).values(status=status, job_id=null()))

    async def _check_table(self) -> None:
        async with self.database.reading() as connection:
            self._types = await connection.run_sync(load_column_types, songs)
            missing = await connection.run_sync(find_unfillable_columns, songs)
        if missing:
            log.warning("songs_cannot_be_added", problem=format_cannot_add(songs, missing, ROW_NOUN))

    async def upsert(self, tracks: Sequence[Track]) -> tuple[int, int]:
        """Stores songs. Returns (new, changed) as counts. A new title or artist makes a song pending."""
        async with (
            explain_refused_rows(self.database, songs, ROW_NOUN),
            self.database.transaction() as connection,
        ):
            page = compare_tracks(tracks, await load_sync_rows(connection, tracks))
            if page.new:
                await connection.execute(
                    insert(songs), [{**new, "changed_at": self.now_milliseconds()} for new in page.new]
                )
            for navidrome_id, values in page.changed.items():
                one = update(songs).where(songs.c.navidrome_id == navidrome_id)
                await connection.execute(one.values({**values, "changed_at": self.now_milliseconds()}))
        return len(page.new), len(page.changed)

    async def count_new_pending(self, tracks: Sequence[Track]) -> int:
        """Predicts how many songs `upsert` would add to the pending songs without a job. Writes nothing."""
        async with self.database.reading() as connection:
            there = await load_sync_rows(connection, tracks)
        page = compare_tracks(tracks, there)
        free = {
            id_ for id_, row in there.items() if (row["status"], row["job_id"]) == (SongStatus.PENDING, None)
        }
        wait = {id_ for id_ in free if there[id_]["unlisted_at"] is None}
        will = free | {id_ for id_, values in page.changed.items() if "status" in values}
        return len(page.new) + len(will - wait)

    async def hide(self, navidrome_ids: Sequence[str]) -> int:
        """Hides these songs, because the music server no longer lists them, and returns their number. Their
        data is kept."""
        now = self.now_milliseconds()
        async with self.database.transaction() as connection:
            for some in slice_items(navidrome_ids):
                these = update(songs).where(songs.c.navidrome_id.in_(some))
                await connection.execute(these.values(unlisted_at=now, changed_at=now))
        return len(navidrome_ids)

    # Queries

    async def load_pending(
        self, limit: int | None = None, *, left_out_since: int | None = None
    ) -> list[Song]:
        """Returns up to `limit` pending songs without a job. Songs whose last change is oldest come first.
        `left_out_since` (milliseconds) selects songs that a model left out exactly once and that changed
        since then."""
        return await self._load_free(SongStatus.PENDING, limit, left_out_since)

    async def load_described(
        self, limit: int | None = None, *, left_out_since: int | None = None
    ) -> list[Song]:
        """Returns up to `limit` songs that have a description but no vector and no job. The order and the
        parameter `left_out_since` are the same as in `load_pending`."""
        return await self._load_free(SongStatus.DESCRIBED, limit, left_out_since)

    async def count_left_out(self, since: int | None = None) -> int:
        """Returns the number of waiting songs without a job that a model has left out. `since` (milliseconds)
        selects songs that a model left out exactly once and that changed since then."""
        query = select(func.count()).where(
            songs.c.status.in_(WAITING_STATUSES), songs.c.job_id.is_(None), IS_LISTED
        )
        conditions = songs.c.tries > 0 if since is None else _left_out_once(since)
        async with self.database.reading() as connection:
            return int((await connection.execute(query.where(conditions))).scalar_one())

    async def count_failures(self) -> list[SongFailureCount]:
        """Returns the 5 most common errors of failed songs, each with its number of songs."""
        reason, number = func.coalesce(songs.c.last_error, ""), func.count().label("number")
        query = (
            select(reason, number)
            .where(songs.c.status == SongStatus.FAILED.value, IS_LISTED)
            .group_by(reason)
        )
        async with self.database.reading() as connection:
            rows = await connection.execute(query.order_by(number.desc(), reason).limit(MAX_FAILURE_REASONS))
            return [SongFailureCount(*row) for row in rows.all()]

    async def load_jobs_with_errors(self) -> list[str]:
        """Returns the ids of jobs that hold songs for which an error is stored, for example from an earlier
        attempt. Returns at most 500 ids."""
        query = (
            select(songs.c.job_id)
            .where(is_held_by_job(), songs.c.last_error.is_not(None), IS_LISTED)
            .distinct()
        )
        async with self.database.reading() as connection:
            found = (await connection.execute(query.limit(MAX_IDS_PER_STATEMENT))).scalars()
            return [job_id for job_id in found if job_id is not None]

    async def count_waiting(self, status: SongStatus, *, untried: bool = False) -> int:
        """Returns the number of songs with this status and without a job. `untried=True`: does not count
        songs that were missing in an answer of the model."""
        query = select(func.count()).where(
            songs.c.status == status.value, songs.c.job_id.is_(None), IS_LISTED
        )
        if untried:
            query = query.where(func.coalesce(songs.c.tries, 0) == 0)
        async with self.database.reading() as connection:
            return int((await connection.execute(query)).scalar_one())

    async def count_by_status(self) -> dict[SongStatus, int]:
        found = await self.database.count_by(songs.c.status, IS_LISTED)
        return {status: found.get(status.value, 0) for status in SongStatus}

    async def find_vector_length(self) -> int | None:
        """Returns the most common length of the stored vectors, from a sample of 100 songs. Returns None if
        there are no vectors."""
        sample = select(func.length(songs.c.vector)).where(
            songs.c.status == SongStatus.COMPLETED.value, IS_LISTED
        )
        async with self.database.reading() as connection:
            sizes = (await connection.execute(sample.limit(VECTOR_SAMPLE_SIZE))).scalars()
            lengths = Counter(size // BYTES_PER_FLOAT for size in sizes if size)
        return lengths.most_common(1)[0][0] if lengths else None

    async def load_row(self, navidrome_id: str) -> SongRow | None:
        return next(iter(await self.load_rows([navidrome_id])), None)

    async def load_rows(self, navidrome_ids: Sequence[str]) -> list[SongRow]:
        """Returns the songs in the order of `navidrome_ids`. Songs that do not exist are left out."""
        found: dict[str, SongRow] = {}
        async with self.database.reading() as connection:
            for some in slice_items(navidrome_ids):
                query = select(*ROW_COLUMNS).where(songs.c.navidrome_id.in_(some))
                found |= {
                    row.navidrome_id: parse_song_row(row) for row in (await connection.execute(query)).all()
                }
        return [found[id_] for id_ in navidrome_ids if id_ in found]

    async def count_with_status(self, batch: Sequence[Song], *statuses: SongStatus) -> int:
        """Counts the songs of the batch that have one of these statuses."""
        rows = await self.load_rows([song.navidrome_id for song in batch])
        return sum(row.status in statuses for row in rows)

    async def load_songs_by_job(self) -> dict[str | None, list[str]]:
        """Returns a mapping from job id to the ids of the songs that the job holds. The key None has the
        songs that are PROCESSING without a job id."""
        query = select(songs.c.job_id, songs.c.navidrome_id).where(is_held_by_job())
        by_job: dict[str | None, list[str]] = {}
        async with self.database.reading() as connection:
            for job_id, navidrome_id in (await connection.execute(query)).all():
                by_job.setdefault(job_id, []).append(navidrome_id)
        return by_job

    # Jobs and their songs

    async def mark_queued(self, jobs: Mapping[str, Iterable[str]]) -> None:
        """Assigns songs to jobs that are about to be enqueued. `jobs` maps job ids to song ids. Call it
        before enqueueing the jobs; otherwise a song could get into two jobs and be paid for twice."""
        async with self.database.transaction() as connection:
            for job_id, ids in jobs.items():
                free = and_(songs.c.status.in_(WAITING_STATUSES), songs.c.job_id.is_(None), IS_LISTED)
                for some in slice_items(list(ids)):
                    await connection.execute(
                        update(songs).where(songs.c.navidrome_id.in_(some), free).values(job_id=job_id)
                    )

    async def mark_processing(
        self, batch: Sequence[Song], job_id: str, *, of: Sequence[SongStatus] = WAITING_STATUSES
    ) -> list[Song]:
        """Marks the songs of `batch` as processing for the job `job_id`, and returns the songs that the job
        now holds. `of`: the statuses of songs that the job may take. Songs of other jobs, changed songs and
        songs that are no longer listed are left out."""
        of_this_job = and_(
            songs.c.job_id == job_id, songs.c.status.in_((*of, SongStatus.PROCESSING, SongStatus.FAILED))
        )
        free = and_(songs.c.job_id.is_(None), songs.c.status.in_(of))
        before = case((songs.c.status.in_(WAITING_STATUSES), songs.c.status), else_=songs.c.previous_status)
        values = {"status": SongStatus.PROCESSING, "previous_status": before, "job_id": job_id}
        taken: set[str] = set()
        async with self.database.transaction() as connection:
            for some in slice_items(batch):
                same = tuple_(songs.c.navidrome_id, TITLE, ARTIST).in_(
                    [(song.navidrome_id, song.title, song.artist) for song in some]
                )
                marked = update(songs).where(same, IS_LISTED, or_(of_this_job, free)).values(values)
                rows = await connection.execute(marked.returning(songs.c.navidrome_id))
                taken |= set(rows.scalars())
        return [song for song in batch if song.navidrome_id in taken]

    async def return_to_waiting(self, job_id: str, error: str = "") -> None:
        """Sets the job's songs from processing back to waiting, at the end of an attempt. The job still holds
        them for its next attempt. `error` is stored with the songs."""
        of_job = and_(songs.c.job_id == job_id, songs.c.status == SongStatus.PROCESSING.value)
        why = {"last_error": strip_nul(error)} if error else {}
        await self._execute(update(songs).where(of_job).values({"status": status_before_processing(), **why}))

    async def release(self, *job_ids: str | None) -> int:
        """Removes the ids of ended or missing jobs from their songs, and restores the songs' earlier status.
        Returns the number of songs. The id None selects songs that are PROCESSING without a job id."""
        released = (
            update(songs).where(is_held_by_job()).values({"status": status_before_job(), "job_id": null()})
        )
        whose = [
            songs.c.job_id.in_(some) for some in slice_items([id_ for id_ in job_ids if id_ is not None])
        ]
        if None in job_ids:
            whose.append(songs.c.job_id.is_(None))
        async with self.database.transaction() as connection:
            return sum([(await connection.execute(released.where(theirs))).rowcount for theirs in whose])

    async def mark_failed(self, job_id: str | None, error: str, answer: str | None = None) -> int:
        """Marks the songs that the job still holds as failed, and returns their number. `answer` is the
        model's unusable answer, stored for debugging."""
        values = {
            "status": SongStatus.FAILED.value,
            "previous_status": status_before_job(),
            "last_error": strip_nul(error),
            "unreadable_answer": None if answer is None else strip_nul(answer),
            "changed_at": self.now_milliseconds(),
        }
        return await self._execute(
            update(songs).where(belongs_to_job(job_id), is_held_by_job()).values(values)
        )

    async def retry_failed(self, *, but: Sequence[str] = ()) -> int:
        """Sets failed songs back to waiting, without a job, and resets their number of tries to 0. Returns
        the number of songs. `but` are ids of jobs whose songs are skipped."""
        values = {
            "status": status_before_processing(),
            "job_id": null(),
            "tries": 0,
            "changed_at": self.now_milliseconds(),
        }
        failed = update(songs).where(songs.c.status == SongStatus.FAILED.value).values(values)
        for some in slice_items(but):
            failed = failed.where(or_(songs.c.job_id.is_(None), songs.c.job_id.not_in(some)))
        return await self._execute(failed)

    async def load_failed_jobs(self) -> list[str]:
        """Returns the ids of jobs that hold failed songs."""
        query = select(songs.c.job_id).where(songs.c.status == SongStatus.FAILED.value).distinct()
        async with self.database.reading() as connection:
            return [job_id for job_id in (await connection.execute(query)).scalars() if job_id is not None]

    async def return_songs_to_jobs(self, job_ids: Sequence[str]) -> int:
        """Sets the failed songs of these jobs back to waiting, because the jobs run again. The jobs still
        hold the songs. Returns the number of songs."""
        values = {"status": status_before_processing(), "tries": 0, "changed_at": self.now_milliseconds()}
        failed = update(songs).where(songs.c.status == SongStatus.FAILED.value).values(values)
        async with self.database.transaction() as connection:
            done = [
                await connection.execute(failed.where(songs.c.job_id.in_(some)))
                for some in slice_items(job_ids)
            ]
        return sum(one.rowcount for one in done)

    # Outcomes

    async def save(self, job_id: str, outcomes: Iterable[SongOutcome]) -> None:
        """Writes the outcomes of a job in one transaction. Skips completed songs and songs that the job no
        longer holds."""
        of_this_job = and_(songs.c.job_id == job_id, songs.c.status != SongStatus.COMPLETED.value)
        async with self.database.transaction() as connection:
            for outcome in outcomes:
                one = update(songs).where(songs.c.navidrome_id == outcome.navidrome_id, of_this_job)
                values = {
                    **cast_values(outcome_columns(outcome), self._types),
                    "changed_at": self.now_milliseconds(),
                }
                await connection.execute(one.values(values))

    async def _load_free(
        self, status: SongStatus, limit: int | None, left_out_since: int | None
    ) -> list[Song]:
        query = (
            select(songs.c.navidrome_id, TITLE, ARTIST)
            .where(songs.c.status == status.value, songs.c.job_id.is_(None), IS_LISTED)
            .order_by(func.coalesce(songs.c.changed_at, 0), songs.c.navidrome_id)
            .limit(limit)
        )
        if left_out_since is not None:
            query = query.where(_left_out_once(left_out_since))
        async with self.database.reading() as connection:
            return [Song(*row) for row in (await connection.execute(query)).all()]

    async def _execute(self, statement: Any) -> int:
        async with self.database.transaction() as connection:
            return int((await connection.execute(statement)).rowcount)

    def now_milliseconds(self) -> int:
        """Returns the time in milliseconds."""
        return int(self._wall() * 1000)


def _left_out_once(since: int) -> ColumnElement[bool]:
    return and_(songs.c.tries == 1, songs.c.changed_at >= since)
