"""The demo's screen: live progress bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

REDRAW_SECONDS, LINE_SECONDS = 0.1, 2.0
"""A terminal is redrawn; elsewhere each update prints a line."""
BAR_WIDTH = 24


@dataclass(frozen=True)
class DemoProgressBar:
    """A progress bar with a note."""

    name: str
    done: float
    whole: float
    note: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.done:g} of {self.whole:g}" + (f", {self.note}" if self.note else "")


ProgressReader = Callable[[], Awaitable[Sequence[DemoProgressBar]]]


class DemoScreen:
    def __init__(self, console: Console) -> None:
        self.console = console
        self._live: Live | None = None
        self._lines: list[str] = []
        self._bars: Sequence[DemoProgressBar] = ()
        self._since: float | None = None

    def title(self, line: str) -> None:
        self.print()
        self.console.print(Text(line, style="bold"), soft_wrap=True)
        self.print()

    def log(self, line: str) -> None:
        """Prints a line, with the seconds since the first logged line before it."""
        now = asyncio.get_running_loop().time()
        self._since = now if self._since is None else self._since
        entry = f"{now - self._since:5.1f} s  {line}"
        if self._live is None:
            self.print(entry)
        else:
            self._lines.append(entry)
            self._draw()

    def print(self, line: str = "") -> None:
        # No wrapping: commands must stay in one piece to be copied.
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    @asynccontextmanager
    async def show_progress(self, load: ProgressReader) -> AsyncIterator[None]:
        """Shows progress bars while the `async with` block runs, and once more at its end. `load` returns the
        current bars."""
        self._lines, self._bars = [], ()
        self._live = Live(console=self.console, auto_refresh=False) if self.console.is_terminal else None
        with self._live or nullcontext():
            polling = asyncio.create_task(self._poll(load))
            try:
                yield
            finally:
                polling.cancel()
                with suppress(asyncio.CancelledError):
                    await polling
            self._show(await load())
        self._live = None

    async def _poll(self, load: ProgressReader) -> None:
        while True:
            await asyncio.sleep(REDRAW_SECONDS if self._live else LINE_SECONDS)
            self._show(await load())

    def _show(self, bars: Sequence[DemoProgressBar]) -> None:
        changed, self._bars = bars != self._bars, bars
        if self._live is not None:
            self._draw()
        elif changed:
            self.log("; ".join(map(str, bars)))

    def _draw(self) -> None:
        if self._live is not None:
            lines = (Text(line) for line in self._lines)
            self._live.update(Group(*lines, Text(), _build_table(self._bars)), refresh=True)


def _build_table(bars: Sequence[DemoProgressBar]) -> Table:
    table = Table.grid(padding=(0, 2))
    for bar in bars:
        whole = max(bar.whole, 1)
        drawn = ProgressBar(total=whole, completed=min(bar.done, whole), width=BAR_WIDTH)
        table.add_row(bar.name, drawn, f"{bar.done:g} of {bar.whole:g}", Text(bar.note, style="dim"))
    return table
