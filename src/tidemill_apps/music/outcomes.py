"""What becomes of a song at the end of a job, as values of its columns.

A song the answer leaves out or malforms is not failed at once: models do that now and then, and the next
batch often has it. It goes back to where it was, counted, and is FAILED after `MOST_TRIES`: a song no model
can describe would be paid for with every start, for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, case, func, null

from tidemill_apps.music.describing import Description
from tidemill_apps.music.songs import Status
from tidemill_apps.music.tables import songs, storable
from tidemill_apps.music.vectors import packed

MOST_TRIES = 3


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a job found out about one song. `problem` says why it is less than was asked for."""

    navidrome_id: str
    description: Description | None = None
    vector: Sequence[float] | None = None
    problem: str | None = None


def columns_of(outcome: Outcome) -> dict[str, Any]:
    """A vector makes a song complete. One that has its description only is described and waits, whatever the
    problem was; one that has neither is where it was before."""
    values = _described(outcome.description)
    if outcome.vector is not None:
        return {**values, "vector": packed(outcome.vector), "status": Status.COMPLETED.value, **_WELL}
    if outcome.problem is None:
        return {**values, "status": Status.DESCRIBED.value, "job_id": null(), **_WELL}
    if values:  # from here on answers without its vector count
        awaits = {"status": Status.DESCRIBED.value, "job_id": null(), "tries": 1}
        return {**values, **awaits, "last_error": storable(outcome.problem)}
    return {**_counted(), "last_error": storable(outcome.problem)}


_WELL = {"tries": 0, "last_error": null(), "kept_answer": null()}


def before_processing() -> ColumnElement[str]:
    return func.coalesce(songs.c.previous_status, Status.PENDING.value)


def _counted() -> dict[str, Any]:
    tries = func.coalesce(songs.c.tries, 0) + 1
    over = tries >= MOST_TRIES
    return {
        "tries": tries,
        "status": case((over, Status.FAILED.value), else_=before_processing()),
        "job_id": case((over, songs.c.job_id), else_=null()),
    }


def _described(description: Description | None) -> dict[str, Any]:
    if description is None:
        return {}
    tags = msgspec.json.encode(description.tags).decode()
    values = {**msgspec.structs.asdict(description), "tags": tags}
    texts = {name: storable(value) for name, value in values.items() if isinstance(value, str)}
    # The vector of another description would find the song by what it no longer says.
    return {**values, **texts, "vector": null()}
