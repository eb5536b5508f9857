"""A real Subsonic server for tests: supysonic, in a process and a folder of its own."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from tempfile import mkdtemp
from typing import Self
from urllib.parse import quote
from urllib.request import urlopen

from tests.apps.music.audio import Recording, recording, write
from tests.servers.program import HOST, Program, free_port

PROGRAM = Path(__file__).with_name("supysonic_program.py")


class MusicServer:
    user, password = "ada", "密码 & open=sesame"

    def __init__(self) -> None:
        self._folder = Path(mkdtemp(prefix="tidemill-music-"))
        self._music = self._folder / "music"
        self._music.mkdir()
        self.port = free_port()
        self.url = f"http://{HOST}:{self.port}"

    def __enter__(self) -> Self:
        given = (str(self.port), self.user, self.password)
        words: list[str | Path] = [sys.executable, PROGRAM, self._folder, *given]
        self._program = Program(words, log=self._folder / "log")
        self._program.answers(self._there)
        return self

    def __exit__(self, *_: object) -> None:
        self._program.end()
        shutil.rmtree(self._folder)

    def hold(self, count: int) -> list[Recording]:
        """Exactly so many songs, as `recording` numbers them from 0."""
        wanted = {self._file(number): number for number in range(count)}
        for file in set(self._music.iterdir()) - wanted.keys():
            file.unlink()
        for file, number in wanted.items():
            if not file.exists():
                write(file, recording(number), number)
        self.rescan()
        return [recording(number) for number in range(count)]

    def rename(self, number: int, what: Recording) -> None:
        """Its tags say something else, and it is the same file."""
        file = self._file(number)
        write(file, what, number)
        newer = int(file.stat().st_mtime) + 10
        os.utime(file, (newer, newer))
        self.rescan()

    def rescan(self) -> None:
        with urlopen(f"{self.url}/rescan", data=b""):  # noqa: S310 - our own address
            pass

    def _file(self, number: int) -> Path:
        return self._music / f"{number:04}.mp3"

    def _there(self) -> bool:
        asked = f"{self.url}/rest/ping.view?u={self.user}&p={quote(self.password)}&c=tests&f=json"
        with urlopen(asked) as answer:  # noqa: S310 - as above
            return b'"ok"' in answer.read()
