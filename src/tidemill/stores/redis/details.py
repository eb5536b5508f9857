"""What is kept of a job beside its record: attempts, log lines, checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tidemill.contract.reader import AttemptRecord, LogLine
from tidemill.core.checkpoints import Checkpoint
from tidemill.stores.redis.rows import step_of
from tidemill.stores.redis.scripts import load
from tidemill.stores.redis.shard import Shard

DETAILS = load("details")
_ATTEMPT = msgspec.json.Decoder(AttemptRecord)
_LINE = msgspec.json.Decoder(LogLine)


class Details(msgspec.Struct, frozen=True):
    attempts: tuple[AttemptRecord, ...]
    logs: tuple[LogLine, ...]
    checkpoints: tuple[Checkpoint, ...]


async def details(shard: Shard, jobs: Sequence[str]) -> list[Details]:
    """R5, R6, K6."""
    found: list[list[Any]] = []
    while len(found) < len(jobs):
        found += await shard.run(DETAILS, *jobs[len(found) :], repeatable=True)
    return [
        Details(
            tuple(_ATTEMPT.decode(text) for text in attempts),
            tuple(sorted(map(_LINE.decode, lines), key=lambda line: (line.generation, line.attempt))),
            tuple(step_of(text) for text in sorted(steps, key=lambda text: text[:4])),
        )
        for attempts, lines, steps in found
    ]
