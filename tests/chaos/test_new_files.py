"""Two processes open the same new file at once, many times: every open succeeds."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.stores.sqlite.conftest import group
from tidemill.stores.sqlite import SqliteStore

FILES = int(os.environ.get("TIDEMILL_NEW_FILES", "40"))
SPAWN = multiprocessing.get_context("spawn")


def _open_each(folder: Path, name: str, wait: Callable[[], object], errors: Any) -> None:
    async def main() -> None:
        for number in range(FILES):
            wait()
            try:
                store = await SqliteStore(folder / f"{number}.db").open()
                await store.insert([group(name)])
                await store.close()
            except Exception as error:
                errors.put(f"{number}.db: {type(error).__name__}: {error}")

    asyncio.run(main())
    errors.put(None)


async def test_i1_two_processes_open_a_fresh_file_at_once(tmp_path: Path) -> None:
    errors, barrier = SPAWN.Queue(), SPAWN.Barrier(2)
    opening = [SPAWN.Process(target=_open_each, args=(tmp_path, name, barrier.wait, errors)) for name in "ab"]
    for process in opening:
        process.start()
    found = [await asyncio.to_thread(errors.get)]
    while found.count(None) < len(opening):
        found.append(await asyncio.to_thread(errors.get))
    for process in opening:
        await asyncio.to_thread(process.join)
    assert [error for error in found if error is not None] == []
    assert await _incomplete(tmp_path) == []


async def _incomplete(folder: Path) -> list[str]:
    """Returns the files that lack the job of one of the processes, or have another mode than the default."""
    incomplete: list[str] = []
    for number in range(FILES):
        path = folder / f"{number}.db"
        store = await SqliteStore(path).open()
        if None in await store.get(["a", "b"]) or path.stat().st_mode & 0o777 != 0o600:
            incomplete.append(path.name)
        await store.close()
    return incomplete
