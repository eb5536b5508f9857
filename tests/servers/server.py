"""The base class of all servers: start, pause, kill, end, and start again."""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from tempfile import gettempdir
from typing import Self

from tests.servers.program import Program, free_port


class Server(ABC):
    """One server. It keeps its port from its creation, and its folder from its first start, until it is
    closed."""

    def __init__(self, kind: str) -> None:
        self.port = free_port()
        self.folder = Path(gettempdir()) / f"tidemill-{kind}-{os.getpid()}-{self.port}"
        self._program: Program | None = None

    @abstractmethod
    def _launch(self) -> Program: ...

    @abstractmethod
    def _answers(self) -> bool: ...

    def start(self) -> None:
        """Starts the server; after `kill` or `end`, on the same port with the data of the disk."""
        if self._program is None:
            self.folder.mkdir(mode=0o700)
        self._program = self._launch()
        self._program.answers(self._answers)

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def _running(self) -> Program:
        if self._program is None:
            raise RuntimeError("this server was not started")
        return self._program

    def pause(self) -> None:
        """Pauses all its processes, including those that serve connected clients."""
        self._running.pause()

    def resume(self) -> None:
        self._running.resume()

    def kill(self) -> None:
        """Kills the server like a power failure."""
        self._running.kill()

    def end(self) -> None:
        """Stops the server cleanly, without waiting for clients."""
        self._running.end()

    def close(self) -> None:
        if self._program is not None:
            self._program.end()
        if self.folder.exists():
            shutil.rmtree(self.folder)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
