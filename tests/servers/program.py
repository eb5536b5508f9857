"""A server program as a child process: it can be killed, paused and restarted, and never outlives the
tests."""

from __future__ import annotations

import ctypes
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

HOST = "127.0.0.1"
# Below the ports that the system gives to outgoing connections: a client that reconnects to a dead server
# there can end up connected to itself. A cluster's bus, 10 000 above, also fits.
PORTS = range(12_000, 22_000)


def free_port() -> int:
    for port in random.SystemRandom().sample(PORTS, 100):
        with socket.socket() as taken, suppress(OSError):
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind((HOST, port))
            return port
    raise RuntimeError(f"no free port on {HOST} between {PORTS.start} and {PORTS.stop}")


def first_new_enough(programs: Iterable[Path], least: int) -> Path:
    """Returns the first installed program of a version that Tidemill supports; a system may have an old
    one."""
    return new_enough(programs, least)[0]


def new_enough(programs: Iterable[Path], least: int) -> list[Path]:
    """Returns all installed programs of a supported version, each once, in the given order."""
    found: dict[Path, Path] = {}
    rejected = []
    for program in programs:
        if not program.exists():
            continue
        output = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
        if (version := re.search(r"(\d+)\.\d+", output)) and int(version[1]) >= least:
            found.setdefault(program.resolve(), program)
        else:
            rejected.append(f"{program}: {output.strip() or 'does not run'}")
    if not found:
        raise RuntimeError(
            f"no server of version {least} or newer; run `make setup`. Seen: {rejected or 'none'}"
        )
    return list(found.values())


def wait_until(condition: Callable[[], bool], what: str, *, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(0.01)


def ends_with_us() -> Callable[[], None] | None:
    """Returns a function that makes the kernel kill a child together with its parent (Linux only).

    A killed test process cannot end its children itself."""
    if sys.platform != "linux":
        return None
    prctl, dies_with_parent = ctypes.CDLL(None).prctl, 1
    return lambda: prctl(dies_with_parent, signal.SIGINT)


class Program:
    """One run of a program. `ends` is the signal for an immediate stop."""

    def __init__(
        self,
        words: Sequence[str | Path],
        *,
        log: Path,
        ends: signal.Signals = signal.SIGTERM,
        user: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._log = log
        self._ends = ends
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                cwd=log.parent,
                user=user,
                extra_groups=[] if user else None,
                env={**os.environ, **(environment or {})},
                preexec_fn=ends_with_us(),  # noqa: PLW1509 - one system call, looked up before the fork
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def answers(self, condition: Callable[[], bool], *, seconds: float = 30) -> None:
        """Waits until `asked` returns true. If the program ends instead, the error shows its output."""
        deadline = time.monotonic() + seconds
        while True:
            with suppress(OSError):
                if condition():
                    return
            if not self.running or time.monotonic() > deadline:
                written = self._log.read_text(encoding="utf-8", errors="replace")[-2000:]
                raise RuntimeError(f"{self._process.args!r} does not answer. It wrote:\n{written}")
            time.sleep(0.01)

    def pause(self) -> None:
        _send(self._family(), signal.SIGSTOP)

    def resume(self) -> None:
        _send(self._family(), signal.SIGCONT)

    def kill(self) -> None:
        """Kills the program and its children with SIGKILL, like a power failure."""
        self.pause()  # prevents new children meanwhile
        family = self._family()
        _send(family, signal.SIGKILL)
        self._process.wait()
        while family & _processes().keys():
            time.sleep(0.001)

    def end(self) -> None:
        if not self.running:
            return
        self.resume()
        self._process.send_signal(self._ends)
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.kill()

    def _family(self) -> set[int]:
        """Returns the process and its descendants. PostgreSQL's children are in separate process groups, so
        only their parent id identifies them."""
        if not self.running:
            return set()
        return {self.pid} | {pid for pid, parent in _processes().items() if parent == self.pid}


def _send(pids: Iterable[int], what: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, what)


def _processes() -> dict[int, int]:
    """Returns every living process with its parent. Zombies are left out: a container may have no process
    that reaps them."""
    if Path("/proc/self/stat").exists():  # a slim container has no `ps`
        lines = [_stat(file) for file in Path("/proc").glob("[0-9]*/stat")]
    else:
        lines = subprocess.check_output(["ps", "-A", "-o", "pid=,state=,ppid="], text=True).splitlines()
    fields = [line.split() for line in lines if line]
    return {int(pid): int(parent) for pid, state, parent, *_ in fields if state[0] not in "ZX"}


def _stat(file: Path) -> str:
    """Returns the fields after the program's name, which is in brackets and may contain anything."""
    try:
        pid, _, rest = file.read_text(encoding="utf-8", errors="replace").partition(" (")
    except OSError:  # it ended after it was listed
        return ""
    return f"{pid} {rest.rpartition(')')[2]}"
