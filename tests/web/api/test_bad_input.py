"""Bad input is refused with one sentence that names the field, and nothing is changed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.web.api.api_client import ApiClient
from tidemill.http_routes.routes import Role
from tidemill.web.request import RouteRequest

SEND = {"task": "send", "payload": {"to": "ann"}}
DEEP = b"[" * 5000 + b"]" * 5000

BODIES: dict[str, tuple[str, str, Any, int, str]] = {
    "unknown field": ("POST", "/jobs", {**SEND, "prority": 1}, 422, "prority"),
    "unknown field inside": ("POST", "/jobs", {**SEND, "unique": {"key": "a", "kye": 1}}, 422, "unique.kye"),
    "missing field": ("POST", "/jobs", {"payload": {}}, 422, "task"),
    "wrong type": ("POST", "/jobs", {**SEND, "priority": "high"}, 422, "priority"),
    "huge number": ("POST", "/jobs", {**SEND, "priority": 10**30}, 422, "priority"),
    "a century": ("POST", "/jobs", {**SEND, "delay": 1e12}, 422, "delay"),
    "no time": ("POST", "/jobs", {**SEND, "at": 1e300}, 422, "at"),
    "not a number": ("POST", "/jobs", b'{"task": "send", "delay": NaN}', 400, ""),
    "over all numbers": ("POST", "/jobs", b'{"task": "send", "delay": 1e999}', 422, "delay"),
    "NUL": ("POST", "/jobs", {**SEND, "key": "a\0b"}, 422, "key"),
    "lone surrogate": ("POST", "/jobs", b'{"task": "send", "key": "\\ud800"}', 400, ""),
    "not UTF-8": ("POST", "/jobs", b'{"task": "\xff"}', 400, ""),
    "not JSON": ("POST", "/jobs", b"{", 400, ""),
    "empty": ("POST", "/jobs", b"", 400, ""),
    "too deep": ("POST", "/jobs", b'{"task": "anything", "payload": {"what": ' + DEEP + b"}}", 400, ""),
    "a list": ("POST", "/jobs", b"[]", 422, ""),
    "an argument": ("POST", "/jobs", {"task": "send", "payload": {"to": 7}}, 422, "payload.to"),
    "no argument": ("POST", "/jobs", {"task": "send", "payload": {}}, 422, "payload.to"),
    "no parameter": ("POST", "/jobs", {"task": "send", "payload": {"to": "a", "cc": 1}}, 422, "payload.cc"),
    "no such task": ("POST", "/jobs", {"task": "sned"}, 422, "task"),
    "too long a name": ("POST", "/jobs", {**SEND, "queue": "q" * 201}, 422, "queue"),
    "no jobs": ("POST", "/bulk/enqueue", {"jobs": []}, 422, "jobs"),
    "no such state": ("POST", "/bulk/retry", {"filter": {"states": ["lost"]}}, 422, "filter.states[0]"),
    "a negative count": ("POST", "/bulk/retry", {"filter": {"queue": "mail"}, "confirm": -1}, 422, "confirm"),
    "no such queue": ("POST", "/bulk/retry", {"filter": {"queue": "male"}}, 404, ""),
    "no setting": ("PATCH", "/queues/mail/settings", {"reason": "why"}, 422, ""),
    "a setting of 0": ("PATCH", "/queues/mail/settings", {"concurrency": 0}, 422, "concurrency"),
    "no amount": ("PATCH", "/pools/model/limits", {"amounts": {}}, 422, "amounts"),
    "an amount of 0": ("PATCH", "/pools/model/limits", {"amounts": {"any": 0}}, 422, "amounts[...]"),
    "a key where none is": ("POST", "/pools/model/close", {"key": "a"}, 422, "key"),
    "cron and every": ("PUT", "/schedules/s", {"job": SEND, "cron": "* * * * *", "every": 60}, 422, "cron"),
    "no cron": ("PUT", "/schedules/s", {"job": SEND, "cron": "often"}, 422, "cron"),
    "an id of a tick": ("PUT", "/schedules/s", {"job": {**SEND, "id": "a"}, "every": 60}, 422, "job.id"),
}  # fmt: skip


async def test_invalid_bodies_are_refused(api: ApiClient) -> None:
    for named, (method, path, body, status, field) in BODIES.items():
        refused = await api.refused(method, path, body)
        assert refused[:2] == (status, field), (named, refused)
    assert (await api.get("/bulk/count"))["matching"] == 0
    assert (await api.get("/queues/mail"))["override"] is None


QUERIES = {
    "/jobs?cursor=x": "cursor",
    "/jobs?cursor=-1": "cursor",
    "/jobs?cursor=99999999999999999999": "cursor",
    "/jobs?limit=0": "limit",
    "/jobs?limit=1001": "limit",
    "/jobs?since=nan": "since",
    "/jobs?since=inf": "since",
    "/jobs?since=1e300": "since",
    "/jobs?time=never": "time",
    "/jobs?state=lost": "state[0]",
    "/jobs?task=%00": "task",
    "/jobs?field=to": "field[0]",
    "/jobs?field=a..b=1": "fields",
    "/jobs?flw=x": "flw",
    "/flows?cursor=nonsense": "cursor",
    "/flows?state=lost": "state[0]",
    "/schedules?cursor=nonsense": "cursor",
    "/events?job=%00": "job",
    "/audit?cursor=nonsense": "cursor",
}


async def test_invalid_queries_are_refused(api: ApiClient) -> None:
    for query, field in QUERIES.items():
        assert (await api.refused("GET", query))[:2] == (422, field), query


class Plain(msgspec.Struct):
    word: str = ""


async def test_application_routes_refuse_nul_too(api: ApiClient) -> None:
    @api.app.web.route(
        "GET", "/api/music/plain", role=Role.VIEWER, summary="Plain.", query=Plain, response=str
    )
    async def plain(asked: RouteRequest) -> str:
        return str(asked.query.word)

    again = ApiClient(api.app)
    assert await again.get("/api/music/plain?word=a") == "a"
    assert (await again.refused("GET", "/api/music/plain?word=%00"))[:2] == (422, "word")


async def test_the_error_of_an_enum_lists_its_choices(api: ApiClient) -> None:
    messages = [
        await api.refused("GET", "/jobs?state=lost"),
        await api.refused("POST", "/bulk/retry", {"filter": {"states": ["lost"]}}),
        await api.refused("DELETE", "/queues/mail/settings?name=wieght"),
        await api.refused("POST", "/tokens", {"name": "ann", "role": "king"}),
    ]
    for (_, _, sentence), choice in zip(messages, ("failed", "failed", "weight", "operator"), strict=True):
        assert "it may be " in sentence
        assert choice in sentence


async def test_invalid_paths_are_refused(api: ApiClient) -> None:
    for path in ("/jobs/a%00b", "/jobs/%ff", "/queues/%00/pause"):
        assert (await api.refused("GET", path))[:2] == (400, "path")


async def test_unknown_names_are_not_found(api: ApiClient) -> None:
    for kind in ("jobs", "queues", "flows", "pools", "schedules", "webhooks"):
        status, _, sentence = await api.refused("GET", f"/{kind}/no%2Fsuch")
        assert status == 404
        assert "'no/such'" in sentence


async def test_a_missing_body_is_refused(api: ApiClient) -> None:
    assert (await api.refused("POST", "/jobs", b""))[2] == "the body is empty; send a JSON object"


@pytest.mark.parametrize("kind", ["application/json", "application/x-www-form-urlencoded", ""])
async def test_an_empty_post_is_an_empty_object(api: ApiClient, kind: str) -> None:
    empty = await api.ok("POST", "/dead-letters/retry", b"", content_type=kind)
    assert empty == await api.ok("POST", "/dead-letters/retry", {})


async def test_a_body_without_the_json_content_type_is_refused(api: ApiClient) -> None:
    refused = await api.refused(
        "POST", "/jobs", b"task=send", content_type="application/x-www-form-urlencoded"
    )
    assert refused[:2] == (415, "content-type")


async def test_a_payload_nested_deeply_is_shown(api: ApiClient) -> None:
    deep: Any = "x"
    for _ in range(300):
        deep = [deep]
    sent = await api.ok("POST", "/jobs", {"task": "anything", "payload": {"what": deep}})
    assert (await api.get(f"/jobs/{sent['id']}"))["payload"] == {"what": deep}


async def test_brackets_in_texts_are_not_nesting(api: ApiClient) -> None:
    text = '["' + "[{" * 1000
    sent = await api.ok("POST", "/jobs", {"task": "anything", "payload": {"what": [text] * 3}})
    assert (await api.get(f"/jobs/{sent['id']}"))["payload"] == {"what": [text] * 3}
    endless = b'{"task": "' + b'\\"[' * 1_000_000
    assert (await api.refused("POST", "/jobs", endless))[0] == 400


async def test_too_large_a_body_and_too_large_a_payload(api: ApiClient) -> None:
    assert (await api.refused("POST", "/jobs", b" " * (10 * 1024 * 1024 + 1)))[0] == 413
    large = {"task": "send", "payload": {"to": "a" * 1_100_000}}
    assert (await api.refused("POST", "/jobs", large))[0] == 413


async def test_the_error_of_an_unknown_path_names_the_alternatives(api: ApiClient) -> None:
    status, _, sentence = await api.refused("GET", "/jbos")
    assert status == 404
    assert sentence == "GET /api/v1/jbos: not found; GET /api/v1/openapi.json lists what there is"
    status, _, sentence = await api.refused("DELETE", "/bulk/count")
    assert status == 405
    assert sentence == "DELETE /api/v1/bulk/count: method not allowed; it takes GET, HEAD"
