"""Tables that fit the terminal, progress bars and confirmation prompts."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple

import click
from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed

from tidemill.cli.output import echo, note, printable


def confirm(question: str) -> bool:
    with _abort_note():
        return click.confirm(question, err=True)


def prompt(question: str) -> str:
    with _abort_note():
        answer: str = click.prompt(question, err=True)
        return answer


@contextmanager
def _abort_note() -> Iterator[None]:
    try:
        yield
    except click.Abort:  # Ctrl-C, or end of input
        echo(err=True)
        note("nothing was changed")
        raise


@contextmanager
def count_progress(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Context manager that shows a progress bar. Yields a function that sets the number of finished items.
    `total=None`: the number of items is unknown."""
    finished = 0

    def count(done: int) -> None:
        nonlocal finished
        finished = done
        progress.update(task, completed=done)

    with _make_progress(MofNCompleteColumn()) as progress:
        task = progress.add_task(label, total=total)
        try:
            yield count
        except (KeyboardInterrupt, asyncio.CancelledError):
            progress.stop()
            expected = total if total is not None else "all"
            note(f"interrupted ({label}): at least {finished} of {expected} were over")
            raise


@contextmanager
def share_progress(label: str) -> Iterator[Callable[[float], None]]:
    """Context manager that shows a progress bar. Yields a function that sets the finished share (0 to 1); any
    thread may call it."""
    with _make_progress(TaskProgressColumn()) as progress:
        task = progress.add_task(label, total=None)
        yield lambda share: progress.update(task, completed=share, total=1.0)


def _make_progress(column: MofNCompleteColumn | TaskProgressColumn) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), column, Elapsed())
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())


COLUMN_GAP = "  "
UNBOUNDED_WIDTH = 10_000


@dataclass(frozen=True)
class Column:
    """One table column.

    - `drop_order`: a narrow terminal drops the column with the highest number first; 0 is never dropped
    - `truncate`: the side at which a long text is cut; None never cuts, so that ids can be copied
    - `min_width`: a text is never cut to fewer characters than this
    - `right`: True if the text is aligned to the right"""

    name: str
    drop_order: int = 0
    truncate: Literal["start", "end"] | None = None
    min_width: int = 12
    right: bool = False


class FittedTable(NamedTuple):
    """A table as lines of text that fit a given width. `dropped` names the columns that were left out."""

    heading: str
    lines: list[str]
    dropped: list[str]


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
    """Prints a table that fits the terminal. Output to a pipe has all columns, and one line per row of any
    length."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else UNBOUNDED_WIDTH
    table = fit_table(columns, rows, width)
    echo(table.heading, bold=True)
    for line in table.lines:
        echo(line)
    if table.dropped:
        note(f"no room for {', '.join(table.dropped)}; --json has all")


def fit_table(columns: Sequence[Column], rows: Iterable[Sequence[object]], width: int) -> FittedTable:
    """Returns the table laid out for `width` characters. The text of a cell is never interpreted as
    markup."""
    cells = [[" ".join(printable(cell).split()) for cell in row] for row in rows]
    names = [column.name for column in columns]
    natural = [max(map(cell_len, column)) for column in zip(names, *cells, strict=True)]
    visible = _columns_with_room(columns, natural, width)
    widths = _column_widths(columns, natural, visible, width)
    heading, *lines = (
        COLUMN_GAP.join(_format_cell(columns[index], row[index], widths[index]) for index in visible).rstrip()
        for row in (names, *cells)
    )
    return FittedTable(heading, lines, [name for index, name in enumerate(names) if index not in visible])


def _columns_with_room(columns: Sequence[Column], natural: Sequence[int], width: int) -> list[int]:
    visible = list(range(len(columns)))
    for index in sorted(visible, key=lambda index: -columns[index].drop_order):
        if (
            _total_width([_min_width(columns[i], natural[i]) for i in visible]) <= width
            or not columns[index].drop_order
        ):
            break
        visible.remove(index)
    return visible


def _column_widths(
    columns: Sequence[Column], natural: Sequence[int], visible: Sequence[int], width: int
) -> dict[int, int]:
    """Returns a dict from the index of each `visible` column to its width in characters. `natural` has the
    width of each column without cuts; `width` is the width of the table."""
    widths = {index: _min_width(columns[index], natural[index]) for index in visible}
    spare = max(0, width - _total_width(widths.values()))
    by_need = sorted(visible, key=lambda index: natural[index] - widths[index])
    for position, index in enumerate(by_need):
        added = min(natural[index] - widths[index], spare // (len(by_need) - position))
        widths[index] += added
        spare -= added
    return widths


def _min_width(column: Column, natural: int) -> int:
    return natural if column.truncate is None else min(natural, max(column.min_width, cell_len(column.name)))


def _total_width(widths: Iterable[int]) -> int:
    column_widths = list(widths)
    return sum(column_widths) + len(COLUMN_GAP) * (len(column_widths) - 1)


def _format_cell(column: Column, text: str, width: int) -> str:
    if (over := cell_len(text) - width) > 0:
        if column.truncate == "start":
            # The end of a dotted name is the most useful part.
            text = "…" + text[len(chop_cells(text, over + 1)[0]) :]
        else:
            text = set_cell_size(text, width - 1).rstrip() + "…"
    padding = " " * (width - cell_len(text))
    return padding + text if column.right else text + padding
