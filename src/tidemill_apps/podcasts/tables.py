"""The tables of podcasts, of their parts and of their feeds, and the rows as values."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    RowMapping,
    String,
    Table,
    Text,
)

from tidemill_apps.common.sentences import Language, TextFormat

metadata = MetaData()
_ID_TYPE = BigInteger().with_variant(Integer(), "sqlite")

podcasts = Table(
    "podcasts",
    metadata,
    Column("id", _ID_TYPE, primary_key=True, autoincrement=True),
    Column("guid", String, nullable=False),  # never changes: players know an episode by it
    Column("title", String, nullable=False),
    Column("text", Text, nullable=False),
    Column("format", String, nullable=False),  # plain, markdown or html
    Column("language", String, nullable=False),  # en or zh
    Column("status", String, nullable=False),
    Column("error", Text),
    Column("job_id", String),  # the current or last job
    Column("regenerations", Integer, nullable=False, server_default="0"),  # automatic ones: 0 or 1
    Column("regenerate_at", Float),  # wall time
    Column("speaker", String),  # who spoke, such as espeak-ng cmn
    Column("characters", Integer, nullable=False, server_default="0"),  # in the unit of the speech service
    Column("duration", Float),  # seconds
    Column("size", BigInteger),  # bytes of the audio file
    Column("audio_key", String),
    Column("transcript_key", String),
    Column("created_at", Float, nullable=False),
    Column("published_at", Float),
    Index("podcasts_by_status", "status"),
    sqlite_autoincrement=True,  # else a new podcast could get the files of a deleted one
)
podcast_parts = Table(
    "podcast_parts",
    metadata,
    Column("podcast_id", _ID_TYPE, nullable=False),
    Column("digest", String, nullable=False),
    Column("cost", Float, nullable=False, server_default="0"),  # USD that this podcast paid for it
    PrimaryKeyConstraint("podcast_id", "digest"),
    Index("podcast_parts_by_digest", "digest"),
)
podcast_feeds = Table(
    "podcast_feeds",
    metadata,
    Column("id", _ID_TYPE, primary_key=True, autoincrement=True),
    Column("name", String, nullable=False),
    Column("token_hash", String, nullable=False, unique=True),
    Column("created_at", Float, nullable=False),
    Column("revoked_at", Float),
)


class PodcastStatus(StrEnum):
    PENDING = "pending"
    PROCESSING = "processing"
    DONE = "done"
    FAILED = "failed"


class NewPodcast(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    text: str
    format: TextFormat
    language: Language


class Podcast(NewPodcast, frozen=True, kw_only=True):
    """One podcast row. The table explains its fields. `cost` is the sum that its parts cost, in USD."""

    id: int
    guid: str
    status: str
    error: str | None
    job_id: str | None
    regenerations: int
    regenerate_at: float | None
    speaker: str | None
    characters: int
    duration: float | None
    size: int | None
    audio_key: str | None
    transcript_key: str | None
    created_at: float
    published_at: float | None
    cost: float = 0.0

    @property
    def is_done(self) -> bool:
        return self.status == PodcastStatus.DONE


class PodcastFeed(msgspec.Struct, frozen=True, kw_only=True):
    """One feed. The token is stored as a hash only."""

    id: int
    name: str
    created_at: float
    revoked_at: float | None


class FinishedEpisode(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a generated episode. The fields are columns of the podcast's row."""

    speaker: str
    characters: int
    duration: float
    size: int
    audio_key: str
    transcript_key: str


def parse_podcast(row: RowMapping) -> Podcast:
    values: dict[str, Any] = {name: row[name] for name in Podcast.__struct_fields__}
    return Podcast(**{**values, "cost": round(float(row["cost"] or 0.0), 6)})
