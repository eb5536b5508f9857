"""Long work shows how far it is, to people only: nothing is drawn where stderr is not a terminal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed

from tidemill.cli.output import note


@contextmanager
def counted(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Yields what is to be called with how many are done. An interruption says how many were."""
    over = 0

    def count(done: int) -> None:
        nonlocal over
        over = done
        progress.update(task, completed=done)

    with _shown(MofNCompleteColumn()) as progress:
        task = progress.add_task(label, total=total)
        try:
            yield count
        except (KeyboardInterrupt, asyncio.CancelledError):
            progress.stop()
            all_ = total if total is not None else "all"
            note(f"interrupted ({label}): at least {over} of {all_} were over")
            raise


@contextmanager
def shared(label: str) -> Iterator[Callable[[float], None]]:
    """Yields what is to be called with the share that is done, 0 to 1, from any thread. Until it is
    called the bar only shows that something goes on."""
    with _shown(TaskProgressColumn()) as progress:
        task = progress.add_task(label, total=None)
        yield lambda share: progress.update(task, completed=share, total=1.0)


def _shown(column: MofNCompleteColumn | TaskProgressColumn) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), column, Elapsed())
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
