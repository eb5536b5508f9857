"""A job that is part of a flow: where it belongs, and what it is given when it runs."""

from __future__ import annotations

import msgspec

COMPENSATION = "!"
"""Behind the name of a step: the jobs that run in the place of those of it that failed."""

RESULT_BYTES = 256 * 1024
"""What a step may return at most: whoever takes it reads it each time it runs."""

GATHERED_BYTES = 32 * 1024 * 1024
"""What a job may be given at most, of all results it takes: a worker has several of them in hand."""


class Read(msgspec.Struct, frozen=True):
    """An argument that is another step's result. With `count` it is the list of what so many jobs of that
    step returned, None in the place of one that failed and was let go."""

    step: str
    count: int | None = None


class InFlow(msgspec.Struct, frozen=True):
    """`index` tells the jobs of one step apart. `reads` are the arguments its payload does not have."""

    id: str
    step: str
    index: int = 0
    reads: dict[str, Read] = {}


def job_id(flow: str, step: str, index: int = 0) -> str:
    """The same however often it is sent, so it still makes one job."""
    return f"{flow}/{step}/{index}"


def place_of(flow: str, job: str) -> tuple[str, int] | None:
    """The step and the index a job has by its id; None when it is not one of that flow."""
    step, _, index = job.removeprefix(f"{flow}/").rpartition("/")
    if not job.startswith(f"{flow}/") or not step or not index.isdecimal():
        return None
    return step, int(index)
