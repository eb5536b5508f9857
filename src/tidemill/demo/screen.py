"""The demo's screen: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tidemill.contract.store import Store
from tidemill.core.states import FINAL, State

REDRAW, NEXT_LINE = 0.1, 1.0
"""A terminal is drawn anew; elsewhere each look is one more line."""
SHOWN = (State.SCHEDULED, State.READY, State.RUNNING, State.DONE, State.FAILED, State.CANCELLED)
BAR = 18
"""So that the table fits 80 columns."""

Counts = Mapping[str, Mapping[State, int]]


class Screen:
    def __init__(self, console: Console) -> None:
        self.console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._said: list[str] = []
        self._since: float | None = None

    def say(self, line: str) -> None:
        """Something happened: said with the seconds since the first thing."""
        now = asyncio.get_running_loop().time()
        self._since = now if self._since is None else self._since
        self._said.append(f"{now - self._since:4.1f} s  {line}")
        if self._live is None:
            self.plain(self._said[-1])

    def plain(self, line: str = "") -> None:
        # Never wrapped by us: what is printed to be copied must stay in one piece.
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    @asynccontextmanager
    async def following(self, store: Store) -> AsyncIterator[None]:
        """Show how far it is while the block runs, and once more at its end."""
        with self._live or nullcontext():
            looking = asyncio.create_task(self._look_again_and_again(store))
            try:
                yield
            finally:
                looking.cancel()
                with suppress(asyncio.CancelledError):
                    await looking
            self._show(await store.counts())

    async def _look_again_and_again(self, store: Store) -> None:
        while True:
            await asyncio.sleep(REDRAW if self._live else NEXT_LINE)
            self._show(await store.counts())

    def _show(self, counts: Counts) -> None:
        if self._live is None:
            total, ended = _total_and_ended(counts)
            self.say(f"{ended} of {total} jobs ended")
        else:
            lines = (Text(line) for line in self._said)
            self._live.update(Group(_table(counts), Text(), *lines), refresh=True)


def _table(counts: Counts) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", show_footer=True, footer_style="bold")
    whole = Counter({state: sum(has.get(state, 0) for has in counts.values()) for state in SHOWN})
    table.add_column("queue", "all")
    for state in SHOWN:
        table.add_column(state.value, str(whole[state] or ""), justify="right")
    table.add_column("ended", _bar({"all": whole}))
    for queue, has in sorted(counts.items()):
        table.add_row(queue, *(str(has.get(state, 0) or "") for state in SHOWN), _bar({queue: has}))
    return table


def _bar(counts: Counts) -> ProgressBar:
    total, ended = _total_and_ended(counts)
    return ProgressBar(total=max(total, 1), completed=ended, width=BAR)


def _total_and_ended(counts: Counts) -> tuple[int, int]:
    total = sum(sum(has.values()) for has in counts.values())
    return total, sum(has.get(state, 0) for has in counts.values() for state in FINAL)
