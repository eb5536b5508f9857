"""A dashboard as somebody runs it: a process of its own, on a SQLite file."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.browser.studio import Studio
from tests.servers.program import Program

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(http://127\.0\.0\.1:\d+)/\S*")


class Site:
    """`how` is `up`, with a worker, or `web`, without. `studio` is the same application in this process."""

    def __init__(self, folder: Path, how: str) -> None:
        self._log = folder / "site.log"
        self.studio = Studio(f"sqlite:///{folder / 'studio.db'}", folder)
        self._program = Program(
            [sys.executable, "-m", "tidemill", how, "tests.browser.running:app", "--port", "0"],
            log=self._log,
            environment={"PYTHONPATH": str(ROOT)},
        )
        try:
            self._program.answers(self._has_said_where)
        except BaseException:
            self._program.kill()
            raise

    @property
    def link(self) -> str:
        """The one that was printed. It is good for one sign-in."""
        return self._found()[0]

    @property
    def address(self) -> str:
        return self._found()[1]

    @property
    def written(self) -> str:
        return self._log.read_text(encoding="utf-8")

    @property
    def pid(self) -> int:
        return self._program.pid

    def end(self) -> None:
        self._program.end()

    def _has_said_where(self) -> bool:
        return LINK.search(self.written) is not None

    def _found(self) -> re.Match[str]:
        found = LINK.search(self.written)
        assert found is not None
        return found
