"""Runs commands in this process, and the application that they run on."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from tidemill import Task, Tidemill
from tidemill.cli import main
from tidemill.contract.store import Store
from tidemill.core.claims import ClaimRequest, ClaimResult, Heartbeat, QueueShare, Settlement
from tidemill.core.outcomes import Outcome

T = TypeVar("T")

APPLICATION = """
from tidemill import Context, Retry, Tidemill

app = Tidemill("sqlite:///shop.db")
app.queue("mail", weight=3, max_length=50)

@app.task(queue="mail", name="send")
async def send(to: str) -> str:
    return f"sent to {to}"

@app.task(queue="mail", name="bounce", retry=Retry(attempts=2, first=0.0))
async def bounce(ctx: Context) -> None:
    ctx.log(f"knocking, {ctx.attempt}")
    raise ConnectionError("nobody home")

not_an_app = 7
"""


def application_at(folder: Path, module: str, url: str) -> None:
    """Writes the same application with another store."""
    (folder / f"{module}.py").write_text(APPLICATION.replace("sqlite:///shop.db", url))


class CliResult(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Cli:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> CliResult:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        out, err = self._capsys.readouterr()
        return CliResult(int(ended.value.code or 0), out, err)

    def make_store(self) -> None:
        """Creates an empty database, as the first use does, without declarations."""
        app = Tidemill("sqlite:///shop.db")
        app.client.run_sync(app.client.store)
        app.close_sync()

    def on_store(self, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        """Runs `work` on the store, as a worker or operator elsewhere would."""
        app = self.app()
        try:
            return app.run_sync(self._open_for(app, work))
        finally:
            app.close_sync()

    async def _open_for(self, app: Tidemill, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        return await work(await app.client.store())

    def app(self) -> Tidemill:
        app: Tidemill = importlib.import_module("shop").app
        return app

    def send(self, to: str) -> str:
        task: Task[[str], str] = importlib.import_module("shop").send
        handle = task.enqueue_sync(to)
        self.app().close_sync()
        return handle.id


async def claim(
    store: Store, queue: str, *, lease: float = 60.0, limit: int = 1, number: int = 1
) -> ClaimResult:
    """Claims jobs as a worker."""
    request = ClaimRequest(
        worker="w", number=number, shares=(QueueShare(queue, limit),), limit=limit, lease=lease
    )
    return await store.claim(request)


async def settle(store: Store, claims: ClaimResult, outcome: Outcome) -> None:
    await store.settle([Settlement(job.id, job.fence, job.claim, outcome) for job in claims.jobs])


async def serve(store: Store, *queues: str) -> None:
    """Registers a worker that is alive and idle."""
    await store.extend(Heartbeat(worker="idle", received=0, lease=60, queues=queues, concurrency=4))
