"""BullMQ on Node: the fastest known queue on Redis, in its native language.

The producer is a Node process. It reads commands line by line and answers each when it is done. The
worker replaces the Python process that was started for it (exec)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.servers.program import ends_with_us

from benchmarks.start_log import StartLogRow

FOLDER = Path(__file__).parents[2] / "node"
INSTALL = ("npm", "install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund")


QUEUES = frozenset({"bullmq-node", "bullmq-flows"})
"""Queues that need the packages of `install`."""


class NodeAdapter:
    script: str

    def open(self, url: str) -> None:
        self._url = url
        self._sender: subprocess.Popen[str] | None = None

    def ask(self, what: str, **details: Any) -> str:
        """Sends a command to the Node process and returns its answer, which means that it is done."""
        if self._sender is None:
            self._sender = subprocess.Popen(
                [node(), str(FOLDER / self.script), "send", self._url],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                preexec_fn=ends_with_us(),  # noqa: PLW1509 - one system call, looked up before the fork
            )
        if self._sender.stdin is None or self._sender.stdout is None:
            raise RuntimeError("the Node process has no pipes")
        self._sender.stdin.write(json.dumps({"do": what, **details}) + "\n")
        self._sender.stdin.flush()
        if not (answer := self._sender.stdout.readline()):
            raise RuntimeError(f"the Node process ended while it was asked: {what}")
        return answer

    def work(self, row: StartLogRow) -> None:
        said = ["work", self._url, str(row.tally.path), str(row.number), str(row.tally.room)]
        program = node()
        os.execv(program, [program, str(FOLDER / self.script), *said])  # noqa: S606 - no shell needed

    def close(self) -> None:
        if self._sender is not None:
            self._sender.kill()
            self._sender.wait()


class BullMQNode(NodeAdapter):
    script = "bullmq.mjs"
    settings = "Node, ioredis; concurrency=100, removeOnComplete; bulk by 1 000"
    acknowledges = "removes the job after it ran; a dead worker's jobs run again"

    def preload(self, jobs: int, text: str = "") -> None:
        self.ask("bulk", jobs=jobs, text=text)

    def enqueue_each(self, jobs: int) -> None:
        self.ask("each", jobs=jobs)

    def enqueue_together(self, jobs: int, producers: int) -> None:
        self.ask("together", jobs=jobs, producers=producers)

    def enqueue_bulk(self, jobs: int) -> None:
        self.ask("bulk", jobs=jobs, text="")

    def send_paced(self, gaps: Sequence[float]) -> None:
        self.ask("paced", gaps=list(gaps))


def node() -> str:
    found = shutil.which("node")
    if found is None:
        raise RuntimeError(
            "BullMQ on Node needs node: install Node.js 18 or newer, or leave it out with --without"
        )
    return found


def install() -> None:
    """Installs the packages of the lock file, once."""
    if not (FOLDER / "node_modules" / "bullmq").exists():
        subprocess.run(INSTALL, cwd=FOLDER, check=True, stdout=subprocess.DEVNULL)
