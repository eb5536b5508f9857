"""The tables, with the source's names for what it names. A `songs` table that is there already may lack
columns: those are added, which is why none but the id is required."""

from __future__ import annotations

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

songs = Table(
    "songs",
    metadata,
    Column("navidrome_id", String, primary_key=True),
    Column("title", String),
    Column("artist", String),
    Column("album", String),
    Column("genre", String),
    Column("duration", Integer),
    Column("path", String),
    Column("status", String, server_default=Status.PENDING.value),
    Column("description", Text),
    Column("tags", Text),  # a JSON list
    Column("mood", String),
    Column("is_instrumental", Boolean),
    Column("energy_level", Integer),  # 1 to 10
    Column("analysis_json", Text),
    Column("vector", LargeBinary),  # float32, little-endian
    Column("job_id", String),  # the job that has the song, or had it last
    Column("previous_status", String),  # what a song that is PROCESSING goes back to
    Column("tries", Integer, server_default="0"),  # answers in which it was left out or malformed
    Column("last_error", Text),
    Column("kept_answer", Text),  # an answer nobody could read, for debugging
    Column("changed_at", BigInteger),  # milliseconds
    Column("gone_at", BigInteger),  # likewise: since when the music server does not list it any more
    Index("songs_by_status", "status", "changed_at"),
    Index("songs_by_job", "job_id"),
)


system_settings = Table(
    "system_settings",
    metadata,
    Column("key", String, primary_key=True),
    Column("value", Text),
)


def storable(text: str) -> str:
    """PostgreSQL has no place for the character 0 in a text, and a model or a tag may have one."""
    return text.replace("\0", "")
