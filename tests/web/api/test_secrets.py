"""I30: no API response contains a secret of a payload, a result or a log line."""

from __future__ import annotations

from typing import Any

from tests.web.api.api_client import ApiClient

CANARY = "open-sesame-7"
WITH = {"what": {"password": CANARY, "name": "ann"}}


async def test_i30_no_response_has_a_secret(api: ApiClient) -> None:
    sent = await api.ok("POST", "/jobs", {"task": "anything", "payload": WITH, "id": "j"})
    await api.ok("PUT", "/schedules/s", {"job": {"task": "anything", "payload": WITH}, "every": 60})
    await api.work()
    job = await api.get(f"/jobs/{sent['id']}")
    assert (job["state"], job["payload"]["what"]["name"]) == ("done", "ann")
    changes: list[tuple[str, str, Any]] = [
        ("POST", "/jobs/j/retry", None),
        ("POST", "/jobs/j/cancel", {}),
        ("POST", "/schedules/s/run", None),
    ]
    responses = [(await api(method, path, body)).text for method, path, body in changes]
    reads = [
        route.path.removeprefix("/api/v1").format_map(_Places())
        for route in api.server.routes
        if route.path.startswith("/api/") and not route.writes and "events" not in route.path
    ]
    responses += [(await api("GET", path)).text for path in reads]
    assert len(responses) > 20
    assert not [text for text in responses if CANARY in text]


async def test_i30_search_and_bulk_changes_reveal_no_secret(api: ApiClient) -> None:
    await api.ok("POST", "/jobs", {"task": "anything", "payload": WITH})
    assert (await api.get(f"/jobs?text={CANARY[:6]}"))["jobs"] == []
    assert (await api.get(f"/bulk/count?text={CANARY[:6]}"))["matching"] == 0
    assert (await api.refused("GET", f"/jobs?field=what.password={CANARY}"))[0] == 422
    guess = {"filter": {"text": CANARY[:6]}, "confirm": 5}
    assert (await api.ok("POST", "/bulk/cancel", guess))["changed"] == 0
    seen = {"filter": {"text": "ann"}, "confirm": 1}
    assert (await api.ok("POST", "/bulk/cancel", seen))["changed"] == 1


class _Places(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return {"job": "j", "schedule": "s", "queue": "mail", "pool": "model"}.get(name, "none")
