"""I3: repeated requests with one idempotency key create one job."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.web.api.api_client import ApiClient
from tidemill.testing import ManualClock

JOB = {"task": "send", "payload": {"to": "ann"}}


async def keyed(api: ApiClient, body: Any = JOB, key: str = "order-17", **headers: str) -> str:
    return str((await api.ok("POST", "/jobs", body, idempotency_key=key, **headers))["id"])


async def count(api: ApiClient) -> int:
    return int((await api.get("/bulk/count"))["matching"])


async def test_i3_concurrent_requests_create_one_job(api: ApiClient) -> None:
    assert len(set(await asyncio.gather(*(keyed(api) for _ in range(20))))) == 1
    assert await count(api) == 1


async def test_i3_a_key_is_kept_for_an_hour_after_its_job_is_gone(api: ApiClient, clock: ManualClock) -> None:
    id_ = await keyed(api)
    await api.work()
    assert await keyed(api) == id_
    assert (await api("DELETE", f"/jobs/{id_}")).status == 204
    clock.advance(3500)
    await api.app.store.prune()
    assert await keyed(api) == id_
    assert await count(api) == 0


async def test_another_key_or_another_user_is_another_job(api: ApiClient) -> None:
    ids = [await keyed(api), await keyed(api, key="order-18"), await keyed(api, user="bob")]
    assert len(set(ids)) == 3


async def test_the_order_of_fields_does_not_matter(api: ApiClient) -> None:
    first = await keyed(api, b'{"task": "send", "payload": {"to": "ann", "copies": 2}}')
    assert await keyed(api, b'{"payload": {"copies": 2, "to": "ann"}, "task":"send"}') == first


async def test_another_request_with_the_same_key_is_refused(api: ApiClient) -> None:
    id_ = await keyed(api)
    for other in (
        {**JOB, "payload": {"to": "bob"}},
        {**JOB, "priority": 1},
        {**JOB, "task": "anything", "payload": {"what": 1}},
    ):
        status, field, sentence = await api.refused("POST", "/jobs", other, idempotency_key="order-17")
        assert (status, field) == (409, "idempotency-key")
        assert f"was used for another request, which made job '{id_}'" in sentence
    assert (await api.get(f"/jobs/{id_}"))["payload"]["to"] == "ann"
    assert await count(api) == 1


async def test_each_job_of_a_bulk_request_is_created_once(api: ApiClient) -> None:
    jobs = {"jobs": [JOB, JOB, {"task": "describe", "payload": {"text": "t"}}]}
    first = await api.ok("POST", "/bulk/enqueue", jobs, idempotency_key="may")
    again = await api.ok("POST", "/bulk/enqueue", jobs, idempotency_key="may")
    assert again == first
    assert len({one["id"] for one in first["verdicts"]}) == 3
    swapped = {"jobs": jobs["jobs"][::-1]}
    assert (await api.refused("POST", "/bulk/enqueue", swapped, idempotency_key="may"))[0] == 409
    assert await count(api) == 3


async def test_an_invalid_key_is_refused(api: ApiClient) -> None:
    for key in ("", "x" * 256, "a\tb"):
        assert (await api.refused("POST", "/jobs", JOB, idempotency_key=key))[:2] == (422, "idempotency-key")
    with_id = {**JOB, "id": "mine"}
    assert (await api.refused("POST", "/jobs", with_id, idempotency_key="k"))[1] == "id"
    assert await count(api) == 0
