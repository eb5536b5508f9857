"""Looking after the store itself, apart from the jobs in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

Progress = Callable[[float], None]
"""Told now and then which share is done, 0 to 1, from any thread."""


class StoreFacts(msgspec.Struct, frozen=True, kw_only=True):
    """`location` never shows a secret. `free_bytes` can be won back by `compact`. `warnings` are whole
    sentences about how the store is set up: what is wrong, what it can cost, what to do."""

    kind: str
    engine: str
    location: str
    schema: int | None = None
    bytes: int | None = None
    free_bytes: int | None = None
    warnings: tuple[str, ...] = ()


class Upkeep(Protocol):
    async def describe(self) -> StoreFacts:
        """U1 What the store is made of and how it is doing; changes nothing."""
        ...

    async def check(self) -> tuple[str, ...]:
        """U2 Damage, a sentence each; empty when the store is whole. Reads everything and changes
        nothing; jobs go on meanwhile."""
        ...

    async def backup(self, target: Path, progress: Progress | None = None) -> None:
        """U3 A copy as of one instant, which can be opened as a store of its own. Refuses a target that
        exists; leaves nothing behind when it fails. A store with tools of its own for this names them
        in a ConfigurationError."""
        ...

    async def compact(self) -> None:
        """U4 Gives free space back to the machine. Nothing is written meanwhile, so callers may wait."""
        ...


@runtime_checkable
class Tended(Protocol):
    """A store that has to be looked after while it is busy."""

    async def tend(self) -> bool:
        """U8 Asked for every few seconds by the worker that leads this duty; harmless when two do it. True
        when there is more to do at once."""
        ...


@runtime_checkable
class MadeByOpening(Protocol):
    """A store that `open` makes where there is none, and at some cost: tables, and the right to make them."""

    async def is_made(self) -> bool:
        """U9 Whether there is one already; makes nothing. Asked before `open`."""
        ...
