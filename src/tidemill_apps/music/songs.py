"""The words of the music application: what a song is in a job, on the server, and how far it is."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Status(StrEnum):
    """DESCRIBED is a song that has its description and awaits its vector."""

    PENDING = "PENDING"
    PROCESSING = "PROCESSING"
    DESCRIBED = "DESCRIBED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class Song(msgspec.Struct, frozen=True):
    """What is sent in a job: little, and enough to ask a model about it."""

    navidrome_id: str
    title: str
    artist: str


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A song with what is known of it, but for its vector."""

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
    kept_answer: str | None
    job_id: str | None
    gone_at: int | None

    @property
    def song(self) -> Song:
        return Song(self.navidrome_id, self.title, self.artist)


class Failure(msgspec.Struct, frozen=True):
    """So many songs failed for this reason."""

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
