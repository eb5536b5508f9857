"""Run the demo. Exit code 0 when every promise held, 1 when one did not."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import structlog
from rich.console import Console

from tidemill.demo.screen import Screen
from tidemill.demo.story import PATIENCE, Told, tell
from tidemill.demo.summary import dashboard_step, next_steps, promises
from tidemill.demo.tasks import FILE, app, witness
from tidemill.errors import TidemillError

INTERRUPTED = 130


Report = Callable[[dict[str, object]], None]


def main(report: Report | None = None) -> int:
    """What was promised is given to `report`, if there is one; what happens is told on stderr then."""
    # The screen belongs to the table; what the worker would log is shown there.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        _forget_the_last_run()
        with tempfile.TemporaryDirectory(prefix="tidemill-demo-") as folder:
            return asyncio.run(
                _run(Screen(Console(stderr=report is not None)), Path(folder) / "deaths", report)
            )
    except (TidemillError, OSError) as error:
        print(f"the demo could not run in {Path.cwd()}: {error}", file=sys.stderr)  # noqa: T201 - a command
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


def _forget_the_last_run() -> None:
    for ending in ("", "-wal", "-shm"):
        FILE.with_name(FILE.name + ending).unlink(missing_ok=True)
    shutil.rmtree(f"{FILE}-wake", ignore_errors=True)


async def _run(screen: Screen, deaths: Path, report: Report | None) -> int:
    screen.plain(f"Tidemill on the SQLite file {FILE}, one worker with 10 slots\n")
    async with app:
        worker = app.worker(concurrency=10)
        running = asyncio.create_task(worker.run())
        async with screen.following(app.store):
            told = await _in_time(tell(screen.say, deaths))
        worker.stop()
        await running
    return close(screen, told, _lines(deaths), report)


async def _in_time(telling: Coroutine[Any, Any, Told]) -> Told:
    try:
        async with asyncio.timeout(PATIENCE):
            return await telling
    except TimeoutError:
        raise TimeoutError(f"it did not come to its end within {PATIENCE:g} s") from None


def _lines(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines()) if file.exists() else 0


def close(screen: Screen, told: Told, deaths: int, report: Report | None) -> int:
    """The exit code."""
    kept = promises(told, witness, deaths)
    code = 0 if all(held for held, _ in kept) else 1
    if report is not None:
        said = [{"kept": held, "says": sentence} for held, sentence in kept]
        report({"kept": code == 0, "promises": said, "next": [*next_steps(told), dashboard_step()]})
        return code
    screen.plain()
    for held, sentence in kept:
        screen.plain(f"{'ok ' if held else 'NOT'} {sentence}")
    screen.plain("\nThe file stays until the next demo. Look at it:\n")
    for command in next_steps(told):
        screen.plain(f"  {command}")
    screen.plain(f"\nOr in a browser, with the link that this prints:\n\n  {dashboard_step()}")
    return code


if __name__ == "__main__":
    sys.exit(main())
