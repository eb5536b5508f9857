"""A real Subsonic server for tests: supysonic, in a separate process and folder."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from tempfile import mkdtemp
from typing import Self
from urllib.parse import quote
from urllib.request import urlopen

from tests.apps.music.audio_files import Recording, recording, write
from tests.servers.program import HOST, Program, free_port

PROGRAM = Path(__file__).with_name("supysonic_process.py")


class MusicServer:
    user, password = "ada", "密码 & open=sesame"

    def __init__(self) -> None:
        self._folder = Path(mkdtemp(prefix="tidemill-music-"))
        self._music = self._folder / "music"
        self._music.mkdir()
        self._renamed: set[Path] = set()
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
        """Makes the server hold exactly `count` songs, numbered from 0 by `recording`."""
        wanted = {self._file(number): number for number in range(count)}
        for file in (set(self._music.iterdir()) - wanted.keys()) | self._renamed:
            file.unlink(missing_ok=True)
        if self._renamed:  # the server forgets the changed files before it sees the original ones again
            self.rescan()
            self._renamed.clear()
        for file, number in wanted.items():
            if not file.exists():
                write(file, recording(number), number)
        self.rescan()
        return [recording(number) for number in range(count)]

    def rename(self, number: int, what: Recording) -> None:
        """Changes the tags of a file; the file stays the same."""
        file = self._file(number)
        write(file, what, number)
        self._renamed.add(file)
        newer = int(file.stat().st_mtime) + 10
        os.utime(file, (newer, newer))
        self.rescan()

    def rescan(self) -> None:
        with urlopen(f"{self.url}/rescan", data=b""):  # noqa: S310 - our own address
            pass

    def _file(self, number: int) -> Path:
        return self._music / f"{number:04}.mp3"

    def _there(self) -> bool:
        url = f"{self.url}/rest/ping.view?u={self.user}&p={quote(self.password)}&c=tests&f=json"
        with urlopen(url) as answer:  # noqa: S310 - as above
            return b'"ok"' in answer.read()
