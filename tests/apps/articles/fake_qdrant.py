"""A fake Qdrant server for tests: the package registries have none.

It implements the part of Qdrant's REST API that the articles application uses, on the client's local
mode in memory. So storage, filters and search are Qdrant's code. The network, indexes and durability of
its server are not covered."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from pydantic import TypeAdapter
from qdrant_client import QdrantClient, models
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

Answers = Callable[[Request], Awaitable[Response]]


class StandIn:
    """The fake server.

    `away` makes it answer like a server that is starting or failing, and `read_only` like one with a
    full disk. `calls` are the requested methods."""

    def __init__(self) -> None:
        self.client = QdrantClient(":memory:")
        self.away = self.read_only = False
        self.calls: list[str] = []
        self.url = ""

    def routes(self) -> list[Route]:
        at = "/collections/{name}"
        return [
            Route(f"{at}/exists", self._answer("exists", self._exists)),
            Route(at, self._answer("info", self._info), methods=["GET"]),
            Route(at, self._answer("create", self._create), methods=["PUT"]),
            Route(f"{at}/points", self._answer("upsert", self._upsert), methods=["PUT"]),
            Route(f"{at}/points", self._answer("retrieve", self._retrieve), methods=["POST"]),
            Route(f"{at}/points/payload", self._answer("set_payload", self._label), methods=["POST"]),
            Route(f"{at}/points/delete", self._answer("delete", self._delete), methods=["POST"]),
            Route(f"{at}/points/query", self._answer("query", self._query), methods=["POST"]),
            Route(f"{at}/points/count", self._answer("count", self._count), methods=["POST"]),
            Route(f"{at}/points/scroll", self._answer("scroll", self._scroll), methods=["POST"]),
        ]

    def _answer(self, method: str, work: Callable[[str, Any], Any]) -> Answers:
        async def answer(request: Request) -> Response:
            self.calls.append(method)
            if self.away or (self.read_only and method == "upsert"):
                return JSONResponse({"status": {"error": "starting"}}, 503)
            body = await request.json() if request.method != "GET" else None
            try:
                result = work(request.path_params["name"], body)
            except ValueError as error:
                return JSONResponse({"status": {"error": str(error)}}, 404)
            return JSONResponse({"result": _plain(result), "status": "ok", "time": 0.0})

        return answer

    def _exists(self, name: str, _: Any) -> Any:
        return {"exists": self.client.collection_exists(name)}

    def _info(self, name: str, _: Any) -> Any:
        return self.client.get_collection(name)

    def _create(self, name: str, body: Any) -> Any:
        if self.client.collection_exists(name):
            raise ValueError(f"Collection `{name}` already exists!")
        return self.client.create_collection(name, models.VectorParams(**body["vectors"]))

    def _upsert(self, name: str, body: Any) -> Any:
        points = _of(list[models.PointStruct]).validate_python(body["points"])
        return self.client.upsert(name, points)

    def _retrieve(self, name: str, body: Any) -> Any:
        return self.client.retrieve(name, ids=body["ids"], with_payload=body["with_payload"])

    def _label(self, name: str, body: Any) -> Any:
        return self.client.set_payload(name, payload=body["payload"], points=body["points"])

    def _delete(self, name: str, body: Any) -> Any:
        if "points" in body:
            return self.client.delete(name, models.PointIdsList(points=body["points"]))
        return self.client.delete(name, models.FilterSelector(filter=models.Filter(**body["filter"])))

    def _query(self, name: str, body: Any) -> Any:
        return self.client.query_points(
            name,
            query=body["query"]["nearest"],
            query_filter=models.Filter(**body["filter"]),
            limit=body["limit"],
            offset=body.get("offset"),
            with_payload=body["with_payload"],
        )

    def _count(self, name: str, _: Any) -> Any:
        return self.client.count(name)

    def _scroll(self, name: str, body: Any) -> Any:
        points, at = self.client.scroll(
            name, limit=body["limit"], offset=body.get("offset"), with_payload=body["with_payload"]
        )
        return {"points": _plain(points), "next_page_offset": at}


@asynccontextmanager
async def stand_in() -> AsyncIterator[StandIn]:
    served = StandIn()
    listening = socket.create_server(("127.0.0.1", 0))
    served.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    config = uvicorn.Config(Starlette(routes=served.routes()), lifespan="off", log_level="critical")
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    running = asyncio.create_task(server.serve([listening]))
    try:
        yield served
    finally:
        server.should_exit = True
        await running
        served.client.close()


def _plain(value: Any) -> Any:
    return _of(type(value)).dump_python(value, mode="json", exclude_none=True)


_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}


def _of(kind: Any) -> TypeAdapter[Any]:
    """Returns a cached adapter; creating one takes longer than using it."""
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]
