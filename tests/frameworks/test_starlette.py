"""Real FastAPI and Starlette applications behind their test client, which runs the loop in a separate
thread."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib import request as http

import pytest
from fastapi import FastAPI, Request
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from tidemill import ConfigurationError, State, Tidemill
from tidemill.frameworks.starlette import tidemill_lifespan
from tidemill.worker.runtime import Runtime


@pytest.fixture
def app(tmp_path: Path) -> Tidemill:
    return Tidemill(f"sqlite:///{tmp_path}/jobs.db")


def test_a_request_enqueues_and_a_worker_in_the_server_runs_it(app: Tidemill) -> None:
    @app.task(name="double")
    async def double(number: int) -> int:
        return 2 * number

    api = FastAPI(lifespan=tidemill_lifespan(app, worker=True, concurrency=2))

    @api.post("/double/{number}", status_code=202)
    async def enqueue(number: int) -> dict[str, str]:
        job = await double.enqueue(number)
        return {"id": job.id}

    @api.get("/jobs/{id}")
    async def wait(id: str) -> dict[str, Any]:  # noqa: A002 - the path's word
        return {"result": await app.job(id).result(timeout=30)}

    with TestClient(api) as client:
        id_ = client.post("/double/21").json()["id"]
        assert client.get(f"/jobs/{id_}").json() == {"result": 42}


def test_the_worker_drains_before_the_server_ends(app: Tidemill) -> None:
    begun, leaving = list[asyncio.Event](), list[asyncio.Event]()

    @app.task(name="slow")
    async def slow() -> str:
        begun[0].set()
        await leaving[0].wait()
        return "finished"

    @asynccontextmanager
    async def events(_: Any) -> AsyncIterator[None]:
        begun.append(asyncio.Event())
        leaving.append(asyncio.Event())
        yield

    async def start(_: Request) -> JSONResponse:
        job = await slow.enqueue()
        await begun[0].wait()
        # Well after the stop request, which follows this response at once.
        asyncio.get_running_loop().call_later(0.2, leaving[0].set)
        return JSONResponse({"id": job.id})

    web = Starlette(routes=[Route("/", start)], lifespan=tidemill_lifespan(app, events, worker=True))
    with TestClient(web) as client:
        id_ = client.get("/").json()["id"]
    assert app.job(id_).status_sync().state is State.DONE
    app.close_sync()


def test_the_own_lifespan_is_around_and_its_state_is_kept(app: Tidemill) -> None:
    seen = list[str]()

    @app.task(name="note")
    async def note() -> None:
        seen.append("ran")

    @asynccontextmanager
    async def own(_: Any) -> AsyncIterator[dict[str, str]]:
        seen.append("opened")
        yield {"greeting": "hello"}
        seen.append("closed")

    async def greet(request: Request) -> JSONResponse:
        job = await note.enqueue()
        await job.result(timeout=30)
        return JSONResponse(request.state.greeting)

    web = Starlette(routes=[Route("/", greet)], lifespan=tidemill_lifespan(app, own, worker=True))
    with TestClient(web) as client:
        assert client.get("/").json() == "hello"
    assert seen == ["opened", "ran", "closed"]


def test_without_a_worker_nothing_runs(app: Tidemill) -> None:
    @app.task(name="note")
    async def note() -> None: ...

    async def enqueue(_: Request) -> JSONResponse:
        job = await note.enqueue()
        return JSONResponse((await job.status()).state)

    web = Starlette(routes=[Route("/", enqueue)], lifespan=tidemill_lifespan(app))
    for _ in range(2):  # a server may be started again in the same process
        with TestClient(web) as client:
            assert client.get("/").json() == "ready"


def test_a_worker_that_cannot_start_keeps_the_server_from_starting(app: Tidemill) -> None:
    served = False

    @app.lifespan
    async def shared() -> AsyncIterator[None]:
        await asyncio.sleep(0.01)
        raise OSError("the model is not there")
        yield

    with (
        pytest.raises(OSError, match="the model is not there"),
        TestClient(Starlette(lifespan=tidemill_lifespan(app, worker=True))),
    ):
        served = True
    assert not served


def test_a_crashed_worker_in_a_server_is_logged_at_once(
    app: Tidemill, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    breaking, logged = asyncio.Event(), asyncio.Event()
    run = Runtime.run

    async def broken(runtime: Runtime) -> None:
        runtime.stop(force=False)
        await run(runtime)
        await breaking.wait()
        raise OSError("the disk is gone")

    class RecordingHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.set()

    async def work(_: Request) -> JSONResponse:
        breaking.set()
        await asyncio.wait_for(logged.wait(), 30)
        return JSONResponse("told")

    monkeypatch.setattr(Runtime, "run", broken)
    monkeypatch.setattr(logging.getLogger("tidemill"), "handlers", [RecordingHandler()])
    web = Starlette(routes=[Route("/", work)], lifespan=tidemill_lifespan(app, worker=True))
    answers = list[str]()
    with pytest.raises(OSError, match="the disk is gone"), TestClient(web) as client:
        answers.append(client.get("/").json())
    assert answers == ["told"], "while the server still answers"
    (line,) = [line for line in caplog.records if line.name == "tidemill"]
    assert line.levelname == "ERROR"
    assert line.exc_info is not None


def test_a_worker_that_ends_when_idle_lets_the_server_go_on(app: Tidemill) -> None:
    async def answer(_: Request) -> JSONResponse:
        return JSONResponse("here")

    web = Starlette(
        routes=[Route("/", answer)], lifespan=tidemill_lifespan(app, worker=True, until_idle=True)
    )
    with TestClient(web) as client:
        assert client.get("/").json() == "here"


def test_a_wrong_option_raises_when_the_lifespan_is_built(app: Tidemill) -> None:
    with pytest.raises(ConfigurationError, match="worker: unknown option 'concurency'"):
        tidemill_lifespan(app, worker=True, concurency=3)
    with pytest.raises(ConfigurationError, match="concurrency: an option of the worker, and there is none"):
        tidemill_lifespan(app, concurrency=3)


SERVER = """
import sys
from fastapi import FastAPI
from tidemill import Tidemill
from tidemill.frameworks.starlette import tidemill_lifespan
import asyncio, contextlib, uvicorn

app = Tidemill(sys.argv[1])
begun, leaving = asyncio.Event(), asyncio.Event()
lifespan = tidemill_lifespan(app, worker=True)

@app.task(name="slow")
async def slow() -> str:
    begun.set()
    await leaving.wait()
    return "finished"

@contextlib.asynccontextmanager
async def around(api):
    async with lifespan(api) as state:
        yield state
        leaving.set()  # the server was told to stop, and the worker is about to be

api = FastAPI(lifespan=around)

@api.post("/")
async def start() -> str:
    job = await slow.enqueue()
    await begun.wait()
    return job.id

uvicorn.run(api, fd=int(sys.argv[2]), log_level="warning")
"""


def test_a_terminated_server_finishes_the_job_it_runs(tmp_path: Path) -> None:
    """uvicorn runs on a socket that the test opened, so it answers as soon as it listens."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = subprocess.Popen(
            [sys.executable, "-c", SERVER, url, str(listening.fileno())], pass_fds=[listening.fileno()]
        )
        try:
            with http.urlopen(
                http.Request(f"http://127.0.0.1:{listening.getsockname()[1]}/", method="POST"), timeout=60
            ) as answer:
                id_ = json.load(answer)
            server.terminate()
            server.wait(timeout=60)
        finally:
            server.kill()
            server.wait()
    app = Tidemill(url)
    assert app.job(id_).status_sync().state is State.DONE
    app.close_sync()
