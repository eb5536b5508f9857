"""What a test may do to any of its servers: start, pause, kill, end, and start again."""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from tempfile import gettempdir
from typing import Self

from tests.servers.program import Program, free_port


class Server(ABC):
    """Its port is its own from the beginning, its folder from the first start, both until it is closed."""

    def __init__(self, kind: str) -> None:
        self.port = free_port()
        self.folder = Path(gettempdir()) / f"tidemill-{kind}-{os.getpid()}-{self.port}"
        self._program: Program | None = None

    @abstractmethod
    def _launch(self) -> Program: ...

    @abstractmethod
    def _answers(self) -> bool: ...

    def start(self) -> None:
        """Also after `kill` or `end`: on the same port, with what the disk kept."""
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
        """Everything stands still, what serves those already connected too."""
        self._running.pause()

    def resume(self) -> None:
        self._running.resume()

    def kill(self) -> None:
        """As if the power had gone."""
        self._running.kill()

    def end(self) -> None:
        """In good order, without waiting for anybody."""
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
