"""Metrics over HTTP: to whoever may view, with what the serving process itself counted."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx2

from tests.metrics.reading import Read
from tidemill import Tidemill
from tidemill.metrics import CONTENT_TYPE
from tidemill.seam.roles import Role
from tidemill.tallies.instruments import Counter
from tidemill.web.server import listen, served


def _application(folder: Path) -> tuple[Tidemill, Counter]:
    app = Tidemill(f"sqlite:///{folder}/jobs.db")
    return app, app.metrics.counter("visits_total", "Visits.")


async def _ask(listening: socket.socket, token: str | None) -> httpx2.Response:
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/metrics"
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient() as client:
        return await client.get(url, headers=headers)


async def test_what_a_serving_process_counted_stays_when_it_ends(tmp_path: Path) -> None:
    (app, visits), (after, _) = _application(tmp_path), _application(tmp_path)
    async with app, after:
        listening = listen("127.0.0.1", 0, chosen=True)
        token = (await app.access.tokens.create("prometheus", Role.VIEWER)).secret
        async with served(app, listening):
            visits.add(3)
            answer = await _ask(listening, token)
            assert (answer.status_code, answer.headers["content-type"]) == (200, CONTENT_TYPE)
            Read(answer.text)
            assert (await _ask(listening, None)).status_code == 401
        assert Read(await after.exposition()).of("visits_total") == 3
