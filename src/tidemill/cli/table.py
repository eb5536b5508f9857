"""Tables that fit: where a terminal is narrow the least important columns go, and long texts are cut."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rich.cells import cell_len, chop_cells, set_cell_size

from tidemill.cli.output import echo, note, printable

GAP = "  "
UNBOUNDED = 10_000


@dataclass(frozen=True)
class Column:
    """`goes`: the highest goes first where there is no room; 0 always stays. `cut`: the side a text may
    lose, down to `least`; what has none is shown whole, so that an id can be copied."""

    name: str
    goes: int = 0
    cut: Literal["start", "end"] | None = None
    least: int = 12
    right: bool = False


class Fitted(NamedTuple):
    """`gone` names the columns there was no room for."""

    heading: str
    lines: list[str]
    gone: list[str]


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
    """A program that reads the table gets every column, and one line per row, however long."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else UNBOUNDED
    table = fitted(columns, rows, width)
    echo(table.heading, bold=True)
    for line in table.lines:
        echo(line)
    if table.gone:
        note(f"no room for {', '.join(table.gone)}; --json has all")


def fitted(columns: Sequence[Column], rows: Iterable[Sequence[object]], width: int) -> Fitted:
    """Nothing in a cell is read as markup."""
    cells = [[" ".join(printable(cell).split()) for cell in row] for row in rows]
    names = [column.name for column in columns]
    natural = [max(map(cell_len, column)) for column in zip(names, *cells, strict=True)]
    shown = _with_room(columns, natural, width)
    widths = _widths(columns, natural, shown, width)
    heading, *lines = (
        GAP.join(_cell(columns[index], row[index], widths[index]) for index in shown).rstrip()
        for row in (names, *cells)
    )
    return Fitted(heading, lines, [name for index, name in enumerate(names) if index not in shown])


def _with_room(columns: Sequence[Column], natural: Sequence[int], width: int) -> list[int]:
    shown = list(range(len(columns)))
    for index in sorted(shown, key=lambda index: -columns[index].goes):
        if _total([_least(columns[i], natural[i]) for i in shown]) <= width or not columns[index].goes:
            break
        shown.remove(index)
    return shown


def _widths(
    columns: Sequence[Column], natural: Sequence[int], shown: Sequence[int], width: int
) -> dict[int, int]:
    """What is over is shared by the texts that would have to be cut, the one that needs least first."""
    widths = {index: _least(columns[index], natural[index]) for index in shown}
    spare = max(0, width - _total(widths.values()))
    wanting = sorted(shown, key=lambda index: natural[index] - widths[index])
    for position, index in enumerate(wanting):
        more = min(natural[index] - widths[index], spare // (len(wanting) - position))
        widths[index] += more
        spare -= more
    return widths


def _least(column: Column, natural: int) -> int:
    return natural if column.cut is None else min(natural, max(column.least, cell_len(column.name)))


def _total(widths: Iterable[int]) -> int:
    each = list(widths)
    return sum(each) + len(GAP) * (len(each) - 1)


def _cell(column: Column, text: str, width: int) -> str:
    if (over := cell_len(text) - width) > 0:
        if column.cut == "start":
            # The end of a dotted name says most.
            text = "…" + text[len(chop_cells(text, over + 1)[0]) :]
        else:
            text = set_cell_size(text, width - 1).rstrip() + "…"
    padding = " " * (width - cell_len(text))
    return padding + text if column.right else text + padding
