"""Much work into jobs of a size: many small things that are worth one job together."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

from tidemill.core.numbers import is_whole
from tidemill.errors import ConfigurationError
from tidemill.times import read_time

T = TypeVar("T")


class Batch(NamedTuple, Generic[T]):
    """`id` is `batch_{milliseconds}_{number}`, for finding in logs what belongs together."""

    id: str
    items: list[T]


def split(items: Iterable[T], size: int, *, at: float | datetime) -> list[Batch[T]]:
    """The items in their order, `size` to a batch and the rest in the last. `at` dates the ids. The number
    in them counts from 1: a time alone would repeat in any loop that is quicker than the clock.

        batches = split(songs, 10, at=time.time())
        await app.enqueue_many(analyze.job(correlationId=id, songs=songs) for id, songs in batches)
    """
    if not is_whole(size, 1):
        raise ConfigurationError(f"size: must be a whole number, 1 or more, is {size!r}")
    if isinstance(items, str | bytes):
        raise ConfigurationError(f"items: must be a list of things, is one {type(items).__name__}; wrap it")
    time = read_time("at", at, ConfigurationError)
    if not math.isfinite(time):
        raise ConfigurationError(f"at: must be a time, is {time}")
    listed = list(items)
    begin = f"batch_{math.floor(time * 1000)}"
    return [
        Batch(f"{begin}_{number}", listed[start : start + size])
        for number, start in enumerate(range(0, len(listed), size), start=1)
    ]
