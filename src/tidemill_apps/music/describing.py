"""From what a model says of a song to what is stored of it, and to the text its vector is made of."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from tidemill_apps.music.answers import Analysis
from tidemill_apps.music.songs import Song

UNKNOWN = "Unknown"
_GENRE = re.compile(r"#?(?:genre|流派|风格)\s*[:\uff1a]\s*(.+)", re.IGNORECASE)


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored of an analysis, by the names of the columns."""

    description: str
    tags: list[str]
    mood: str
    is_instrumental: bool
    energy_level: int
    analysis_json: str


def described(analysis: Analysis) -> Description:
    anchor, tags = analysis.vector_anchor, analysis.embedding_tags
    return Description(
        description=f"{anchor.acoustic_model or ''}\n\n[Imagery] {anchor.semantic_push or ''}",
        tags=_tags(analysis),
        mood=next(iter(tags.mood_coord), "") or UNKNOWN,
        is_instrumental=analysis.is_instrumental,
        energy_level=tags.energy,
        analysis_json=msgspec.json.encode(analysis).decode(),
    )


def _tags(analysis: Analysis) -> list[str]:
    tags = analysis.embedding_tags
    merged = [*tags.mood_coord, *tags.objects]
    if tags.scene_tag:
        merged.append(tags.scene_tag)
    if tags.spectrum:
        merged.append(f"#Spectrum:{tags.spectrum}")
    return merged


def genre_in(tags: Iterable[str]) -> str | None:
    """The genre among objects or tags: `#Genre:Jazz`, in Chinese also with its own colon."""
    for tag in tags:
        if found := _GENRE.fullmatch(tag.strip()):
            return found[1].strip()
    return None


def vector_text(song: Song, description: str, tags: Iterable[str]) -> str:
    """Of the song itself and of what is stored of it, so that a vector made later is the same as one made at
    once."""
    listed = list(tags)
    lines = [f"Title: {song.title}", f"Artist: {song.artist}"]
    if genre := genre_in(listed):
        lines.append(f"Genre: {genre}")
    return "\n".join([*lines, description, f"Tags: {', '.join(listed)}"])
