"""Running commands in this process, and the application they are run on."""

from __future__ import annotations

import importlib
import json
from typing import Any, NamedTuple

import pytest

from tidemill import Task, Tidemill
from tidemill.cli import main

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


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Cli:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Ran:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        out, err = self._capsys.readouterr()
        return Ran(int(ended.value.code or 0), out, err)

    def make_store(self) -> None:
        """An empty database, as the first use by a program leaves it, with nothing declared."""
        app = Tidemill("sqlite:///shop.db")
        app.client.run_sync(app.client.store)
        app.close_sync()

    def app(self) -> Tidemill:
        app: Tidemill = importlib.import_module("shop").app
        return app

    def send(self, to: str) -> str:
        task: Task[[str], str] = importlib.import_module("shop").send
        handle = task.enqueue_sync(to)
        self.app().close_sync()
        return handle.id
