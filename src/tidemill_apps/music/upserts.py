"""What of a page of the music server's songs is new, and what is another than is stored. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import null

from tidemill_apps.music.songs import Status, Track
from tidemill_apps.music.tables import storable


class Page(NamedTuple):
    """Values of columns: of the songs that are new, and of those to be changed, by id."""

    new: list[dict[str, Any]]
    changed: dict[str, dict[str, Any]]


def compared(tracks: Iterable[Track], stored: Mapping[str, Mapping[str, Any]]) -> Page:
    """A server may list a song twice when it changes while it is read: the later entry holds."""
    new: dict[str, dict[str, Any]] = {}
    changed: dict[str, dict[str, Any]] = {}
    for track in tracks:
        values = columns_of(track)
        if (before := stored.get(track.id)) is None:
            new[track.id] = {**values, "navidrome_id": track.id, "status": Status.PENDING.value, "tries": 0}
        elif different := _different(values, before):
            renamed = not different.keys().isdisjoint(("title", "artist"))
            changed[track.id] = different | (_WAITS_AGAIN if renamed else {})
    return Page(list(new.values()), changed)


# What was said of it was said of another song; a job that has it now finds that it is nobody's.
_WAITS_AGAIN = {"status": Status.PENDING.value, "job_id": null(), "tries": 0, "last_error": null()}


def _different(values: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    back = {} if before["gone_at"] is None else {"gone_at": null()}
    return {name: value for name, value in values.items() if before[name] != value} | back


COLUMNS = ("title", "artist", "album", "genre", "duration", "path")


def columns_of(track: Track) -> dict[str, Any]:
    values = msgspec.structs.asdict(track)
    told = {name: values[name] for name in COLUMNS}
    return {name: storable(value) if isinstance(value, str) else value for name, value in told.items()}
