"""No SQLite connection crosses a fork.

A child inherits SQLite's own notes of which locks are held, but not the locks: on an inherited
connection, or beside one, it would write a log file that others think nobody uses, and lose
accepted jobs. So every connection is closed before a fork, and opened again by whoever needs it.
"""

from __future__ import annotations

import contextlib
import os
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    def before_fork(self) -> None: ...
    def after_fork_in_parent(self) -> None: ...
    def after_fork_in_child(self) -> None: ...


# In this order: a reader holds its lock while it asks the writer for something, never the other way.
_readers: WeakSet[Forkable] = WeakSet()
_writers: WeakSet[Forkable] = WeakSet()
_held: list[Forkable] = []


def survive_forks(forkable: Forkable, *, reader: bool) -> None:
    (_readers if reader else _writers).add(forkable)


def _before() -> None:
    for forkable in [*_readers, *_writers]:
        forkable.before_fork()
        _held.append(forkable)


def _in_parent() -> None:
    while _held:
        _held.pop().after_fork_in_parent()


def _in_child() -> None:
    while _held:
        _held.pop().after_fork_in_child()


with contextlib.suppress(AttributeError):  # no forks on this system
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
