"""The main API requests on Redis and PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.web.api.api_client import ApiClient, shop_app


@pytest.fixture(params=["redis", "postgres"])
async def api(request: pytest.FixtureRequest) -> AsyncIterator[ApiClient]:
    if request.param == "postgres":
        url = request.getfixturevalue("prepared_postgres_url")
    else:
        found, prefix = (request.getfixturevalue(name) for name in ("redis_url", "redis_prefix"))
        url = f"{found}?prefix={prefix}"
    async with shop_app(url) as app:
        yield ApiClient(app)


async def test_i3_a_job_is_enqueued_once_found_changed_and_deleted(api: ApiClient) -> None:
    job = {"task": "send", "payload": {"to": "nobody"}}
    sends = (api.ok("POST", "/jobs", job, idempotency_key="order-17") for _ in range(10))
    [id_] = {answer["id"] for answer in await asyncio.gather(*sends)}
    assert (await api.refused("POST", "/jobs", {**job, "priority": 1}, idempotency_key="order-17"))[0] == 409
    await api.work()
    assert [dead["id"] for dead in (await api.get("/dead-letters?text=home"))["jobs"]] == [id_]
    assert (await api.ok("POST", "/dead-letters/retry", {"confirm": 1}))["changed"] == 1
    assert (await api.ok("POST", f"/jobs/{id_}/cancel", {}))["state"] == "cancelled"
    assert (await api("DELETE", f"/jobs/{id_}")).status == 204
    assert (await api.ok("POST", "/jobs", job, idempotency_key="order-17"))["id"] == id_
    assert (await api.get("/bulk/count"))["matching"] == 0


async def test_queues_and_pools_are_managed(api: ApiClient) -> None:
    many = [{"task": "describe", "payload": {"text": str(number)}} for number in range(3)]
    assert (await api.ok("POST", "/bulk/enqueue", {"jobs": many}))["accepted"] == 3
    paused = await api.ok("POST", "/queues/texts/pause", {"reason": "tea"})
    assert (paused["pause"]["reason"], paused["counts"]["ready"]) == ("tea", 3)
    assert (await api.ok("PATCH", "/queues/texts/settings", {"weight": 3}))["settings"]["weight"] == 3
    pool = await api.ok("PATCH", "/pools/model/limits", {"amounts": {"requests per minute": 2}})
    assert (pool["limits"][0]["amount"], pool["waiting"]) == (2, 3)
    made = await api.ok("PUT", "/schedules/nightly", {"job": many[0], "cron": "0 3 * * *"})
    assert made["state"] == "active"
    assert (await api.get("/stats"))["store"]["kind"] in ("redis", "postgres", "postgresql")
    assert (await api.ok("POST", "/queues/texts/empty", {"confirm": "texts"}))["deleted"] == 3


NONSENSE = ["/jobs?key=%00", "/jobs?text=%EF%BF%BF", "/jobs/%F0%9F%90%B3", "/flows?name=%F0%9F%90%B3"]


async def test_odd_input_causes_no_server_error(api: ApiClient) -> None:
    for path in NONSENSE:
        assert (await api("GET", path)).status < 500, path
    odd = {"task": "anything", "payload": {"what": "a\0b 🐋"}, "tags": ["\uffff"], "key": "\x1b["}
    sent = await api.ok("POST", "/jobs", odd)
    assert (await api.get(f"/jobs/{sent['id']}"))["payload"] == odd["payload"]
