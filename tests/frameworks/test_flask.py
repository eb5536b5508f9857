"""Flask under a real threaded server, and in forked processes as pre-fork servers use them."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib import request as http

import pytest
from flask import Flask
from werkzeug.serving import make_server

from tidemill import State, Tidemill, testing


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Tidemill]:
    app = Tidemill(f"sqlite:///{tmp_path}/jobs.db")

    @app.task(name="double")
    def double(number: int) -> int:
        return 2 * number

    yield app
    app.close_sync()


def flask(app: Tidemill) -> Flask:
    from tidemill.client.task import Task

    web = Flask("web")
    double: Task[[int], int] = Task(app.client, app.tasks["double"])

    @web.post("/double/<int:number>")
    def enqueue(number: int) -> dict[str, str]:
        return {"id": double.enqueue_sync(number).id}

    return web


@contextmanager
def served(web: Flask) -> Iterator[str]:
    server = make_server("127.0.0.1", 0, web, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def post(url: str) -> str:
    with http.urlopen(http.Request(url, method="POST")) as answer:  # noqa: S310 - our own server
        id_: str = json.load(answer)["id"]
        return id_


async def run_worker(app: Tidemill) -> None:
    async with app:
        await app.worker(until_idle=True).run()


async def test_many_threads_of_a_server_enqueue(app: Tidemill) -> None:
    ids = list[str]()
    with served(flask(app)) as url:
        threads = [
            threading.Thread(target=lambda n=n: ids.append(post(f"{url}/double/{n}"))) for n in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    await run_worker(app)
    async with app:
        results = [await app.job(id_).result(timeout=1) for id_ in ids]
    assert sorted(results) == [2 * n for n in range(20)]


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # the test forks on purpose
def test_processes_forked_after_the_first_use_enqueue(app: Tidemill) -> None:
    """gunicorn forks like this with --preload."""
    web = flask(app)
    with web.test_client() as client:
        client.post("/double/1")
    children = [fork_and_post(web, number) for number in (2, 3)]
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0]
    with web.test_client() as client:
        assert client.post("/double/4").status_code == 200
    queue = app.run_sync(app.inspect.queue("default"))
    assert queue.counts[State.READY] == 4


def fork_and_post(web: Flask, number: int) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with web.test_client() as client:
                code = 0 if client.post(f"/double/{number}").status_code == 200 else 2
        finally:
            os._exit(code)
    return child


def test_a_kit_sees_what_the_threads_of_a_server_enqueue(app: Tidemill) -> None:
    with testing.kit(app) as kit, served(flask(app)) as url:
        id_ = post(f"{url}/double/21")
        kit.run_until_idle()
        assert kit.result(app.job(id_)) == 42


def test_inline_runs_on_the_thread_of_the_request(app: Tidemill) -> None:
    with testing.inline(app) as kit, served(flask(app)) as url:
        assert kit.result(app.job(post(f"{url}/double/21"))) == 42
