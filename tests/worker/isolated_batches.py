"""Batch handlers that an isolated process finds by import, one of them deadly."""

from __future__ import annotations

import os
from typing import Any

from tests.worker.isolated_tasks import Decorated
from tidemill.tasks.batches import FailedItem, make_batch_definition
from tidemill.tasks.context import Context


def squares(ctx: Context, numbers: list[int]) -> list[str | FailedItem]:
    ctx.log(f"{len(ctx.batch)} jobs")
    if 13 in numbers:
        raise LookupError("thirteen")
    return [FailedItem("negative", retry=False) if n < 0 else f"{n * n} by {os.getpid()}" for n in numbers]


async def deadly(numbers: list[int]) -> list[int]:
    if 13 in numbers:
        os._exit(7)
    return numbers


async def short(numbers: list[int]) -> list[int]:
    return [number for number in numbers if number != 13]


async def _odd(numbers: list[int]) -> list[Any]:
    return [object() if number == 13 else number for number in numbers]


_odd.__qualname__ = "odd"  # found under the name a decorator would have bound
odd = Decorated(make_batch_definition(_odd, name="odd", max_items=10))
