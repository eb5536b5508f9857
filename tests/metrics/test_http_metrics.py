"""Metrics over HTTP: users who may view see them, including those of the serving process."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx2

from tests.metrics.prometheus_parser import ParsedMetrics
from tidemill import Tidemill
from tidemill.http_routes.routes import Role
from tidemill.metrics import CONTENT_TYPE
from tidemill.metrics.instruments import Counter
from tidemill.web.server import listen, serve_dashboard


def _application(folder: Path) -> tuple[Tidemill, Counter]:
    app = Tidemill(f"sqlite:///{folder}/jobs.db")
    return app, app.metrics.counter("visits_total", "Visits.")


async def _ask(listening: socket.socket, token: str | None) -> httpx2.Response:
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/metrics"
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient() as client:
        return await client.get(url, headers=headers)


async def test_counters_of_a_web_process_stay_after_it_ends(tmp_path: Path) -> None:
    (app, visits), (after, _) = _application(tmp_path), _application(tmp_path)
    async with app, after:
        listening = listen("127.0.0.1", 0, port_is_fixed=True)
        token = (await app.auth.tokens.create("prometheus", Role.VIEWER)).secret
        async with serve_dashboard(app, listening):
            visits.add(3)
            answer = await _ask(listening, token)
            assert (answer.status_code, answer.headers["content-type"]) == (200, CONTENT_TYPE)
            ParsedMetrics(answer.text)
            assert (await _ask(listening, None)).status_code == 401
        assert ParsedMetrics(await after.exposition()).of("visits_total") == 3
