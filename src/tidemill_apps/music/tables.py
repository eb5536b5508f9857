"""The songs and settings tables, the row types, and the conversion between songs and column values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Row,
    String,
    Table,
    Text,
    and_,
    case,
    func,
    null,
    or_,
    select,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from tidemill_apps.common.database import slice_items
from tidemill_apps.common.live_settings import create_settings_table


class SongStatus(StrEnum):
    """The status of a song. A DESCRIBED song has a description and waits for its vector. A COMPLETED song has
    both."""

    PENDING = "PENDING"
    PROCESSING = "PROCESSING"
    DESCRIBED = "DESCRIBED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class Song(msgspec.Struct, frozen=True):
    """A song in a job's payload: as much as the model needs."""

    navidrome_id: str
    title: str
    artist: str


class SongRow(msgspec.Struct, frozen=True, kw_only=True):
    """A stored song without its vector."""

    navidrome_id: str
    title: str
    artist: str
    album: str | None
    genre: str | None
    duration: int | None
    status: str
    description: str | None
    tags: list[str]
    mood: str | None
    is_instrumental: bool | None
    energy_level: float | None
    tries: int
    last_error: str | None
    unreadable_answer: str | None
    job_id: str | None
    unlisted_at: int | None

    @property
    def song(self) -> Song:
        return Song(self.navidrome_id, self.title, self.artist)


class SongFailureCount(msgspec.Struct, frozen=True):
    """An error, and the number of songs that failed because of it."""

    reason: str
    songs: int


class Track(msgspec.Struct, frozen=True, kw_only=True):
    """A song as the music server lists it."""

    id: str
    title: str = ""
    artist: str = ""
    album: str | None = None
    genre: str | None = None
    duration: int | None = None
    path: str | None = None


metadata = MetaData()
ALWAYS_SET: dict[Any, Any] = {"always_set": True}
WRITES_NULL: dict[Any, Any] = {"writes_null": True}
"""See `common.existing_tables`."""

songs = Table(
    "songs",
    metadata,
    Column("navidrome_id", String, primary_key=True),
    Column("title", String, info=ALWAYS_SET),
    Column("artist", String, info=ALWAYS_SET),
    Column("album", String, info=WRITES_NULL),
    Column("genre", String, info=WRITES_NULL),
    Column("duration", Integer, info=WRITES_NULL),
    Column("path", String, info=WRITES_NULL),
    Column("status", String, server_default=SongStatus.PENDING.value, info=ALWAYS_SET),
    Column("description", Text),
    Column("tags", Text, info={"json": True}),  # JSON list
    Column("mood", String),
    Column("is_instrumental", Boolean),
    Column("energy_level", Integer),  # 1 to 10
    Column("analysis_json", Text, info={"json": True}),
    Column("vector", LargeBinary, info=WRITES_NULL),  # float32, little-endian
    Column("job_id", String, info=WRITES_NULL),  # the current or last job
    Column("previous_status", String),  # status before PROCESSING
    Column("tries", Integer, server_default="0", info=ALWAYS_SET),  # answers that left it out or malformed it
    Column("last_error", Text, info=WRITES_NULL),
    Column("unreadable_answer", Text, info=WRITES_NULL),  # kept for debugging
    Column("changed_at", BigInteger, info=ALWAYS_SET),  # milliseconds
    Column(
        "unlisted_at", BigInteger, info=WRITES_NULL
    ),  # milliseconds; since when the server no longer lists it
    Index("songs_by_status", "status", "changed_at"),
    Index("songs_by_job", "job_id"),
)


system_settings = create_settings_table("system_settings", metadata)


def strip_nul(text: str) -> str:
    """Removes NUL characters, which PostgreSQL texts cannot hold."""
    return text.replace("\0", "")


Vector = NDArray[np.float32]
BYTES_PER_FLOAT = 4


def pack_vector(vector: Sequence[float]) -> bytes:
    return np.asarray(vector, dtype="<f4").tobytes()


def unpack_vector(stored: bytes) -> Vector:
    return np.frombuffer(stored, dtype="<f4")


MAX_TRIES = 3


class SongOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a job for one song. `problem` says why the description or the vector is missing."""

    navidrome_id: str
    description: SongDescription | None = None
    vector: Sequence[float] | None = None
    problem: str | None = None


def outcome_columns(outcome: SongOutcome) -> dict[str, Any]:
    """Returns the column values to write for an outcome. A song with a vector is completed. A song with only
    a description waits for its vector. A song with neither fails at its third try."""
    values = _description_columns(outcome.description)
    if outcome.vector is not None:
        return {
            **values,
            "vector": pack_vector(outcome.vector),
            "status": SongStatus.COMPLETED.value,
            **_CLEARED_ERROR_COLUMNS,
        }
    if outcome.problem is None:
        return {**values, "status": SongStatus.DESCRIBED.value, "job_id": null(), **_CLEARED_ERROR_COLUMNS}
    if values:  # from here on, tries count answers without its vector
        awaits = {"status": SongStatus.DESCRIBED.value, "job_id": null(), "tries": 1}
        return {**values, **awaits, "last_error": strip_nul(outcome.problem)}
    return {**_failed_try_columns(), "last_error": strip_nul(outcome.problem)}


_CLEARED_ERROR_COLUMNS = {"tries": 0, "last_error": null(), "unreadable_answer": null()}


def status_before_processing() -> ColumnElement[str]:
    return func.coalesce(songs.c.previous_status, SongStatus.PENDING.value)


def _failed_try_columns() -> dict[str, Any]:
    tries = func.coalesce(songs.c.tries, 0) + 1
    over = tries >= MAX_TRIES
    return {
        "tries": tries,
        "status": case((over, SongStatus.FAILED.value), else_=status_before_processing()),
        "job_id": case((over, songs.c.job_id), else_=null()),
    }


def _description_columns(description: SongDescription | None) -> dict[str, Any]:
    if description is None:
        return {}
    tags = msgspec.json.encode(description.tags).decode()
    values = {**msgspec.structs.asdict(description), "tags": tags}
    texts = {name: strip_nul(value) for name, value in values.items() if isinstance(value, str)}
    # A vector of the former description would find the song by outdated words.
    return {**values, **texts, "vector": null()}


class TrackChanges(NamedTuple):
    """The difference between listed and stored songs. `new` has the column values of new songs. `changed`
    maps song ids to the changed column values."""

    new: list[dict[str, Any]]
    changed: dict[str, dict[str, Any]]


def compare_tracks(tracks: Iterable[Track], stored: Mapping[str, Mapping[str, Any]]) -> TrackChanges:
    """Returns which listed tracks are new or changed. `stored` maps song ids to stored rows. If the server
    lists a new song twice, the later entry counts."""
    new: dict[str, dict[str, Any]] = {}
    changed: dict[str, dict[str, Any]] = {}
    for track in tracks:
        values = track_columns(track)
        if (before := stored.get(track.id)) is None:
            new[track.id] = {
                **values,
                "navidrome_id": track.id,
                "status": SongStatus.PENDING.value,
                "tries": 0,
            }
        elif different := _changed_columns(values, before):
            renamed = not different.keys().isdisjoint(("title", "artist"))
            changed[track.id] = different | (_PENDING_AGAIN_COLUMNS if renamed else {})
    return TrackChanges(list(new.values()), changed)


# The description belonged to another song. A job that holds it finds that it no longer does.
_PENDING_AGAIN_COLUMNS = {
    "status": SongStatus.PENDING.value,
    "job_id": null(),
    "tries": 0,
    "last_error": null(),
}


def _changed_columns(values: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    back = {} if before["unlisted_at"] is None else {"unlisted_at": null()}
    return {name: value for name, value in values.items() if before[name] != value} | back


TRACK_COLUMNS = ("title", "artist", "album", "genre", "duration", "path")


def track_columns(track: Track) -> dict[str, Any]:
    values = msgspec.structs.asdict(track)
    told = {name: values[name] for name in TRACK_COLUMNS}
    return {name: strip_nul(value) if isinstance(value, str) else value for name, value in told.items()}


WAITING_STATUSES = (SongStatus.PENDING, SongStatus.DESCRIBED)

TITLE, ARTIST = func.coalesce(songs.c.title, ""), func.coalesce(songs.c.artist, "")
SYNC_COLUMNS = [songs.c[name] for name in ("navidrome_id", "status", "job_id", "unlisted_at", *TRACK_COLUMNS)]
IS_LISTED = songs.c.unlisted_at.is_(None)
"""True for songs that the music server lists, as of the last sync."""
ROW_COLUMNS = [songs.c[name] for name in SongRow.__struct_fields__]


async def load_sync_rows(
    connection: AsyncConnection, tracks: Sequence[Track]
) -> dict[str, Mapping[str, Any]]:
    """Returns a mapping from song id to the stored row of that track, with only the columns that a sync
    compares. Tracks without a row are left out."""
    there: dict[str, Mapping[str, Any]] = {}
    for some in slice_items([track.id for track in tracks]):
        rows = await connection.execute(select(*SYNC_COLUMNS).where(songs.c.navidrome_id.in_(some)))
        there |= {row["navidrome_id"]: row for row in rows.mappings()}
    return there


def is_held_by_job() -> ColumnElement[bool]:
    waits = and_(songs.c.status.in_(WAITING_STATUSES), songs.c.job_id.is_not(None))
    return or_(songs.c.status == SongStatus.PROCESSING.value, waits)


def status_before_job() -> ColumnElement[str]:
    """Returns an SQL expression for the status that a song had before its job began. While a song waits, this
    is its current status. Otherwise it is the column `previous_status`."""
    return case((songs.c.status.in_(WAITING_STATUSES), songs.c.status), else_=status_before_processing())


def belongs_to_job(job_id: str | None) -> ColumnElement[bool]:
    return songs.c.job_id.is_(None) if job_id is None else songs.c.job_id == job_id


def parse_song_row(row: Row[Any]) -> SongRow:
    values = dict(zip(row._fields, row, strict=True))
    given = {"title": row.title or "", "artist": row.artist or "", "tries": row.tries or 0}
    if row.is_instrumental is not None:  # some tables hold a number
        given["is_instrumental"] = bool(row.is_instrumental)
    return SongRow(**{**values, **given, "tags": _parse_tags(row.tags)})


def _parse_tags(tags: str | list[str] | None) -> list[str]:
    """Returns the tags as a list. The column may hold a JSON list as text, a list that the driver has already
    decoded, or plain text from another program."""
    if isinstance(tags, list):
        return [str(tag) for tag in tags]
    try:
        return msgspec.json.decode(tags or "[]", type=list[str])
    except msgspec.DecodeError:
        return [tags or ""]


class SongDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The column values that are made from the chat model's analysis of a song."""

    description: str
    tags: list[str]
    mood: str
    is_instrumental: bool
    energy_level: int
    analysis_json: str
