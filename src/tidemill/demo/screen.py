"""The demo's screen: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tidemill.contract.store import Store
from tidemill.core.states import FINAL, State

EVERY = 0.1
SHOWN = (State.SCHEDULED, State.READY, State.RUNNING, State.DONE, State.FAILED, State.CANCELLED)


class Screen:
    def __init__(self, console: Console) -> None:
        self.console = console
        self._said: list[str] = []

    def say(self, line: str) -> None:
        self._said.append(line)
        if not self.console.is_terminal:
            self.console.print(f"· {line}", highlight=False)

    @asynccontextmanager
    async def following(self, store: Store) -> AsyncIterator[None]:
        """Redraw while the block runs, and once more at its end."""
        if not self.console.is_terminal:
            yield
            return
        with Live(console=self.console, auto_refresh=False) as live:

            async def draw() -> None:
                live.update(Group(await counts_table(store), *(Text(f"· {line}") for line in self._said)))
                live.refresh()

            async def redraw() -> None:
                while True:
                    await draw()
                    await asyncio.sleep(EVERY)

            drawing = asyncio.create_task(redraw())
            try:
                yield
            finally:
                drawing.cancel()
                await asyncio.gather(drawing, return_exceptions=True)
            await draw()


async def counts_table(store: Store) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("queue", *(state.value for state in SHOWN)):
        table.add_column(heading, justify="left" if heading == "queue" else "right")
    table.add_column("ended")
    for queue, counts in sorted((await store.counts()).items()):
        total, ended = sum(counts.values()), sum(counts.get(state, 0) for state in FINAL)
        numbers = [str(counts.get(state, 0) or "") for state in SHOWN]
        table.add_row(queue, *numbers, ProgressBar(total=max(total, 1), completed=ended, width=30))
    return table
