"""The demo's screen: bars that grow on a terminal, plain lines elsewhere."""

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

REDRAW, NEXT_LINE = 0.1, 2.0
"""A terminal is drawn anew; elsewhere each look is one more line."""
WIDTH = 24


@dataclass(frozen=True)
class Bar:
    """So much of a whole, and what else there is to say of it."""

    name: str
    done: float
    whole: float
    note: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.done:g} of {self.whole:g}" + (f", {self.note}" if self.note else "")


Look = Callable[[], Awaitable[Sequence[Bar]]]


class Screen:
    def __init__(self, console: Console) -> None:
        self.console = console
        self._live: Live | None = None
        self._said: list[str] = []
        self._bars: Sequence[Bar] = ()
        self._since: float | None = None

    def title(self, line: str) -> None:
        self.plain()
        self.console.print(Text(line, style="bold"), soft_wrap=True)
        self.plain()

    def say(self, line: str) -> None:
        """Something happened: said with the seconds since the first thing."""
        now = asyncio.get_running_loop().time()
        self._since = now if self._since is None else self._since
        said = f"{now - self._since:5.1f} s  {line}"
        if self._live is None:
            self.plain(said)
        else:
            self._said.append(said)
            self._draw()

    def plain(self, line: str = "") -> None:
        # Never wrapped by us: what is printed to be copied must stay in one piece.
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    @asynccontextmanager
    async def following(self, look: Look) -> AsyncIterator[None]:
        """Show how far it is while the block runs, and once more at its end."""
        self._said, self._bars = [], ()
        self._live = Live(console=self.console, auto_refresh=False) if self.console.is_terminal else None
        with self._live or nullcontext():
            looking = asyncio.create_task(self._look_again_and_again(look))
            try:
                yield
            finally:
                looking.cancel()
                with suppress(asyncio.CancelledError):
                    await looking
            self._show(await look())
        self._live = None

    async def _look_again_and_again(self, look: Look) -> None:
        while True:
            await asyncio.sleep(REDRAW if self._live else NEXT_LINE)
            self._show(await look())

    def _show(self, bars: Sequence[Bar]) -> None:
        changed, self._bars = bars != self._bars, bars
        if self._live is not None:
            self._draw()
        elif changed:
            self.say("; ".join(map(str, bars)))

    def _draw(self) -> None:
        if self._live is not None:
            lines = (Text(line) for line in self._said)
            self._live.update(Group(*lines, Text(), _table(self._bars)), refresh=True)


def _table(bars: Sequence[Bar]) -> Table:
    table = Table.grid(padding=(0, 2))
    for bar in bars:
        whole = max(bar.whole, 1)
        drawn = ProgressBar(total=whole, completed=min(bar.done, whole), width=WIDTH)
        table.add_row(bar.name, drawn, f"{bar.done:g} of {bar.whole:g}", Text(bar.note, style="dim"))
    return table
