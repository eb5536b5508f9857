"""Serves a recorded session over HTTP. It refuses an unknown request like a wrong password."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl

RECORDED = Path(__file__).parent / "recorded"
REFUSED = {
    "subsonic-response": {
        "status": "failed",
        "version": "1.16.1",
        "error": {"code": 40, "message": "Wrong username or password"},
    }
}


@contextmanager
def serving(answer: Any) -> Iterator[str]:
    """Serves `answer(path, form)` for every POST: bytes unchanged, other values as JSON. Yields the
    address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            form = dict(parse_qsl(self.rfile.read(length).decode(), keep_blank_values=True))
            reply = answer(self.path, form)
            body = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def replaying(name: str) -> Iterator[tuple[str, list[str]]]:
    """Yields the address, and the list of requested methods."""
    exchanges = json.loads((RECORDED / name).read_text(encoding="utf-8"))
    requests: list[str] = []

    def answer(path: str, form: dict[str, str]) -> Any:
        method = path.removeprefix("/rest/").removesuffix(".view")
        requests.append(method)
        same = [one["answer"] for one in exchanges if (one["method"], one["form"]) == (method, form)]
        return same[0] if same else REFUSED

    with serving(answer) as url:
        yield url, requests
