"""The tables, with the source's names for what it names. A `songs` table that is there already may lack
columns: those are added, which is why none but the id is required."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

from tidemill_apps.music.songs import Status

metadata = MetaData()
GIVEN: dict[Any, Any] = {"given": True}
EMPTIED: dict[Any, Any] = {"emptied": True}
"""See `common.column_types`."""

songs = Table(
    "songs",
    metadata,
    Column("navidrome_id", String, primary_key=True),
    Column("title", String, info=GIVEN),
    Column("artist", String, info=GIVEN),
    Column("album", String, info=EMPTIED),
    Column("genre", String, info=EMPTIED),
    Column("duration", Integer, info=EMPTIED),
    Column("path", String, info=EMPTIED),
    Column("status", String, server_default=Status.PENDING.value, info=GIVEN),
    Column("description", Text),
    Column("tags", Text, info={"json": True}),  # a JSON list
    Column("mood", String),
    Column("is_instrumental", Boolean),
    Column("energy_level", Integer),  # 1 to 10
    Column("analysis_json", Text, info={"json": True}),
    Column("vector", LargeBinary, info=EMPTIED),  # float32, little-endian
    Column("job_id", String, info=EMPTIED),  # the job that has the song, or had it last
    Column("previous_status", String),  # what a song that is PROCESSING goes back to
    Column("tries", Integer, server_default="0", info=GIVEN),  # answers in which it was left out or malformed
    Column("last_error", Text, info=EMPTIED),
    Column("kept_answer", Text, info=EMPTIED),  # an answer nobody could read, for debugging
    Column("changed_at", BigInteger, info=GIVEN),  # milliseconds
    Column("gone_at", BigInteger, info=EMPTIED),  # likewise: since when the server does not list it any more
    Index("songs_by_status", "status", "changed_at"),
    Index("songs_by_job", "job_id"),
)


system_settings = Table(
    "system_settings",
    metadata,
    Column("key", String, primary_key=True),
    Column("value", Text, info=GIVEN),
)


def storable(text: str) -> str:
    """PostgreSQL has no place for the character 0 in a text, and a model or a tag may have one."""
    return text.replace("\0", "")
