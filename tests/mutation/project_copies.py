"""Copies of the project in which tests run; each run is a forked process.

The parent process has imported the packages that tests need, so a run starts in a second."""

from __future__ import annotations

import compileall
import contextlib
import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

IMPORTED = (
    "apsw",
    "asyncio",
    "concurrent.futures",
    "hypothesis.strategies",
    "http.client",
    "msgspec",
    "sqlite3",
)
# The run exceeded its time limit; `os.waitstatus_to_exitcode` never returns this code.
TIMED_OUT = 1000


def import_packages() -> None:
    """Imports the packages that tests need, except the project, which each run imports from its copy."""
    for name in IMPORTED:
        importlib.import_module(name)


class ProjectCopy:
    """A copy of the project's files, of which one at a time may be changed."""

    def __init__(self, project: Path, folder: Path) -> None:
        self.root = folder
        self._changed: tuple[str, bytes] | None = None
        listing = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=project,
            check=True,
            capture_output=True,
        )
        for name in listing.stdout.decode().split("\0"):
            if name and (project / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(project / name, folder / name)
        for code in ("src", "tests"):
            compileall.compile_dir(folder / code, quiet=2)

    def change(self, path: str, source: bytes) -> None:
        self._changed = path, (self.root / path).read_bytes()
        self._write(path, source)

    def restore(self) -> None:
        if self._changed is not None:
            self._write(*self._changed)
            self._changed = None

    def _write(self, path: str, source: bytes) -> None:
        """Writes a source file and removes its compiled file. Python compares only size and second of the
        change, which may be equal for a mutant."""
        (self.root / path).write_bytes(source)
        for compiled in (self.root / path).parent.glob(f"__pycache__/{Path(path).stem}.*.pyc"):
            compiled.unlink()

    def start(self, run: Callable[[], int], seconds: float) -> ForkedRun:
        """Calls `run` in a forked process with the copy as its project."""
        shutil.rmtree(self.root / ".hypothesis", ignore_errors=True)
        pid = os.fork()
        if pid == 0:
            code = 3
            try:
                self._enter()
                code = run()
            finally:
                sys.stdout.flush()
                os._exit(code)
        return ForkedRun(pid, time.monotonic() + seconds)

    def _enter(self) -> None:
        os.setsid()
        silent = os.open(os.devnull, os.O_RDWR)
        output = os.open(self.root / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for target, source in ((0, silent), (1, output), (2, output)):
            os.dup2(source, target)
        os.chdir(self.root)
        os.environ["PYTHONPATH"] = f"{self.root / 'src'}{os.pathsep}{self.root}"
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        sys.dont_write_bytecode = True
        for name in [
            name for name in sys.modules if name.partition(".")[0].startswith(("tests", "tidemill"))
        ]:
            del sys.modules[name]
        sys.path[:0] = [str(self.root / "src"), str(self.root)]


class ForkedRun:
    """A forked process and its deadline."""

    def __init__(self, pid: int, deadline: float) -> None:
        self._pid = pid
        self._deadline = deadline

    def poll(self) -> int | None:
        """Returns the exit code, or None while it runs; kills the process at its deadline."""
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid:
            self._kill()
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > self._deadline:
            self._kill()
            os.waitpid(self._pid, 0)
            return TIMED_OUT
        return None

    def _kill(self) -> None:
        """Kills the whole session, because a killed test leaves its children behind."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)


@contextlib.contextmanager
def create_copies(project: Path, count: int) -> Iterator[Sequence[ProjectCopy]]:
    with tempfile.TemporaryDirectory(prefix="tidemill-mutants-", ignore_cleanup_errors=True) as folder:
        made = []
        for number in range(count):
            root = Path(folder) / str(number)
            root.mkdir()
            made.append(ProjectCopy(project, root))
        yield made
