"""Run the demo. Exit code 0 when every promise held, 1 when one did not."""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
from collections import Counter
from pathlib import Path

import structlog
from rich.console import Console

from tidemill.demo.screen import Screen, counts_table
from tidemill.demo.story import HOSTS, LETTERS, PAGES, PAUSE, SONGS, tell
from tidemill.demo.tasks import Demo, build

CLOCKS_APART = 0.05
"""The pause ends by the wall clock, the witness reads the loop's."""


def main() -> int:
    # The screen belongs to the table; what the worker would log is shown there.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    console = Console()
    with tempfile.TemporaryDirectory(prefix="tidemill-demo-") as folder:
        file = Path(folder) / "demo.db"
        console.print(f"Tidemill on {file}, one worker with 10 slots", highlight=False)
        return asyncio.run(_run(build(f"sqlite:///{file}"), Screen(console)))


async def _run(demo: Demo, screen: Screen) -> int:
    async with demo.app:
        worker = demo.app.worker()
        running = asyncio.create_task(worker.run())
        async with screen.following(demo.app.store):
            endings = await tell(demo, screen.say)
        if not screen.console.is_terminal:
            screen.console.print(await counts_table(demo.app.store))
        worker.stop()
        await running
    return _judge(demo, endings, screen.console)


def _judge(demo: Demo, endings: Counter[str], console: Console) -> int:
    """What was promised, beside what was seen."""
    waited = (demo.witness.first_letter or 0) - demo.witness.paused
    most = max(demo.witness.most_at_once.values(), default=0)
    fine = SONGS + LETTERS + PAGES * len(HOSTS)
    checks = {
        f"{endings['done']} of {fine} jobs done": endings["done"] == fine,
        f"{demo.witness.retries} of them at a second attempt": demo.witness.retries == SONGS // 5,
        f"{endings['failed']} failed for good, kept with its error": endings["failed"] == 1,
        f"{endings['cancelled']} cancelled while it ran": endings["cancelled"] == 1,
        f"the first letter left {waited:.1f} s after the pause began": waited >= PAUSE - CLOCKS_APART,
        f"at most {most} at once per host": most == 1,
    }
    for sentence, held in checks.items():
        console.print(f"{'ok ' if held else 'NOT'} {sentence}", highlight=False)
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
