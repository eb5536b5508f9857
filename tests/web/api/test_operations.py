"""Queues, pools, schedules, flows, workers and plans over HTTP."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from msgspec import Meta

from tests.web.api.api_client import ApiClient
from tidemill import Task
from tidemill.core.claims import Heartbeat
from tidemill.testing import ManualClock


async def test_queues_are_listed_paused_and_resumed(api: ApiClient, clock: ManualClock) -> None:
    await api.sent()
    assert [queue["name"] for queue in await api.get("/queues")] == ["feeds", "mail", "texts"]
    end = clock.wall() + 60
    paused = await api.ok("POST", "/queues/mail/pause", {"until": end, "reason": "tea"})
    assert (paused["pause"]["until"], paused["pause"]["reason"]) == (end, "tea")
    clock.advance(61)
    assert (await api.get("/queues/mail"))["pause"] is None
    await api.ok("POST", "/queues/mail/pause", {})
    assert (await api.ok("POST", "/queues/mail/resume"))["pause"] is None
    assert (await api.refused("POST", "/queues/mail/pause", {"until": 1}))[:2] == (422, "until")
    assert (await api.refused("GET", "/queues/male"))[0] == 404


async def test_queue_settings_are_overridden(api: ApiClient) -> None:
    await api.ok("PATCH", "/queues/mail/settings", {"concurrency": 2, "keep_done": {"age": 60}}, user="bea")
    view = await api.ok("PATCH", "/queues/mail/settings", {"weight": 3, "reason": "spring"})
    assert view["override"]["changes"] == {
        "concurrency": 2,
        "weight": 3,
        "keep_done": {"age": 60.0, "count": None},
    }
    assert (view["settings"]["weight"], view["override"]["reason"]) == (3, "spring")
    view = await api.ok("DELETE", "/queues/mail/settings?name=weight&name=keep_done")
    assert view["override"]["changes"] == {"concurrency": 2}
    assert (await api.ok("DELETE", "/queues/mail/settings"))["override"] is None


async def test_a_queue_is_emptied_by_its_name(api: ApiClient) -> None:
    await api.sent()
    assert (await api.refused("POST", "/queues/mail/empty", {"confirm": "male"}))[:2] == (422, "confirm")
    assert await api.ok("POST", "/queues/mail/empty", {"confirm": "mail"}) == {"queue": "mail", "deleted": 1}


async def test_queue_history(api: ApiClient) -> None:
    await api.sent()
    await api.sent("nobody")
    await api.work()
    [minute] = await api.get("/queues/mail/history")
    assert (minute["done"], minute["failed"]) == (1, 1)
    assert await api.get("/stats/history") == [minute]
    assert await api.get(f"/queues/mail/history?since={minute['at'] + 60}") == []
    stats = await api.get("/stats")
    assert {queue["name"]: queue["processed"] for queue in stats["queues"]}["mail"] == 2


async def test_pools_are_overridden_closed_and_opened(api: ApiClient) -> None:
    assert [(pool["name"], pool["keyed"]) for pool in await api.get("/pools")] == [
        ("model", False),
        ("site", True),
    ]
    pool = await api.ok("PATCH", "/pools/model/limits", {"amounts": {"requests per minute": 2}})
    assert (pool["limits"][0]["amount"], pool["limits"][0]["declared"]) == (2, 5)
    status, field, sentence = await api.refused("PATCH", "/pools/model/limits", {"amounts": {"tokens": 2}})
    assert (status, field) == (422, "amounts.tokens")
    assert sentence.endswith("there are: requests per minute")
    assert (await api.ok("DELETE", "/pools/model/limits?limit=requests per minute"))["override"] is None
    closed = await api.ok("POST", "/pools/model/close", {"reason": "costs"}, user="bea")
    assert (closed["closed"]["by"], closed["closed"]["reason"]) == ("bea", "costs")
    assert (await api.ok("POST", "/pools/model/open", {}))["closed"] is None
    assert (await api.ok("POST", "/pools/site/close", {"key": "a.example"}))["key"] == "a.example"
    assert (await api.get("/pools/site?key=a.example"))["closed"] is not None
    assert await api.get("/pools/model/history") == []


async def test_schedules_are_created_changed_and_removed(api: ApiClient) -> None:
    made = await api.ok(
        "PUT", "/schedules/hourly", {"job": {"task": "send", "payload": {"to": "ann"}}, "every": 3600}
    )
    assert (made["state"], made["arguments"], made["settings"]["every"]) == (
        "active",
        {"to": "ann", "copies": 1},
        3600,
    )
    at = made["next"][0] + 100
    body = {"job": {"task": "send", "payload": {"to": "ann"}}, "every": 3600, "next_at": at}
    assert (await api.ok("PUT", "/schedules/hourly", body))["next"][:2] == [at, at + 3600]
    refused = await api("PUT", "/schedules/hourly", {"job": body["job"], "cron": "0 3 * * *", "next_at": at})
    assert (refused.status, "next_at: must come with every" in str(refused.json)) == (422, True)
    assert [view["name"] for view in (await api.get("/schedules"))["schedules"]] == ["hourly"]
    assert (await api.ok("POST", "/schedules/hourly/pause", {"reason": "tea"}))["state"] == "paused"
    assert (await api.get("/schedules?state=paused"))["schedules"] != []
    assert (await api.ok("POST", "/schedules/hourly/resume"))["state"] == "active"
    ran = await api.ok("POST", "/schedules/hourly/run")
    assert (await api.get(f"/jobs/{ran['id']}"))["task"] == "send"
    assert await api.ok("POST", "/schedules/hourly/run") == {"id": ran["id"], "existing": True}
    nightly = await api.ok(
        "PATCH", "/schedules/hourly/settings", {"cron": "0 3 * * *", "tz": "Asia/Shanghai"}
    )
    assert nightly["settings"]["cron"] == "0 3 * * *"
    assert (await api.ok("DELETE", "/schedules/hourly/settings?name=cron"))["settings"]["every"] == 3600
    assert (await api("DELETE", "/schedules/hourly")).status == 204
    assert (await api("DELETE", "/schedules/hourly")).status == 404


async def test_a_flow_is_shown_cancelled_and_retried(api: ApiClient) -> None:
    send: Task[..., str] = Task(api.app.client, api.app.tasks["send"])
    flow = api.app.flow("dub", key="7")
    first = flow.add(send, to="nobody").named("first")
    flow.add(send, to=first).named("second")
    id_ = quote((await flow.enqueue()).id, safe="")
    assert [step["name"] for step in (await api.get(f"/flows/{id_}"))["steps"]] == ["first", "second"]
    assert (await api.refused("POST", f"/flows/{id_}/retry"))[0] == 409
    await api.work()
    assert (await api.get("/flows?name=dub&state=failed"))["flows"][0]["key"] == "7"
    assert (await api.ok("POST", f"/flows/{id_}/retry"))["state"] == "running"
    cancelled = await api.ok("POST", f"/flows/{id_}/cancel", {"reason": "enough"})
    assert (cancelled["state"], cancelled["reason"]) == ("cancelled", "enough")
    assert (await api.refused("POST", f"/flows/{id_}/cancel", {}))[0] == 409


async def test_s12_worker_status(api: ApiClient) -> None:
    assert await api.get("/worker") == {"status": "stopped", "concurrency": 0}
    for name, slots in (("w1", 4), ("w2", 6)):
        beat = Heartbeat(worker=name, received=0, lease=60, host="h", queues=("mail",), concurrency=slots)
        await api.app.store.extend(beat)
    assert await api.get("/worker") == {"status": "running", "concurrency": 10}
    assert [worker["id"] for worker in await api.get("/workers")] == ["w1", "w2"]


async def test_a_plan_of_a_task_an_example_or_a_list(api: ApiClient) -> None:
    plan = await api.ok("POST", "/plan", {"task": "describe", "count": 12, "takes": 1})
    assert (plan["count"], plan["bottleneck"]["name"]) == (12, "requests per minute")
    assert plan["sentence"].startswith("12 jobs of describe")
    feed = await api.ok("POST", "/plan", {"task": "refresh", "count": 5, "payload": {"feed": "a.example"}})
    assert feed["limits"][0]["key"] == "a.example"
    jobs = [{"task": "describe", "payload": {"text": "a"}}] * 3
    assert (await api.ok("POST", "/plan", {"jobs": jobs}))["count"] == 3
    assert (await api.refused("POST", "/plan", {"count": 3}))[:2] == (422, "task")
    assert (await api.get("/bulk/count"))["matching"] == 0


async def test_tasks_have_payload_schemas(api: ApiClient) -> None:
    tasks = {task["name"]: task for task in await api.get("/tasks")}
    assert list(tasks) == ["anything", "describe", "refresh", "send"]
    assert (tasks["send"]["attempts"], tasks["describe"]["pools"]) == (1, ["model"])
    assert tasks["send"]["payload"]["$defs"]["payload"]["properties"] == {
        "to": {"type": "string"},
        "copies": {"type": "integer", "default": 1},
    }


async def test_settings_are_masked_and_application_settings_changed(api: ApiClient) -> None:
    kept = {"size": 3}

    async def read() -> int:
        return kept["size"]

    async def write(value: int) -> None:
        kept["size"] = value

    api.app.web.setting(
        "batch_size", Annotated[int, Meta(ge=1)], summary="songs in one call", read=read, write=write
    )
    shown = await api.get("/settings")
    assert {"name": "worker.concurrency", "value": 10, "origin": "default"} in shown["settings"]
    assert shown["application"] == [{"name": "batch_size", "value": 3, "summary": "songs in one call"}]
    assert (await api.ok("PUT", "/settings/batch_size", {"value": 7}))["value"] == 7
    assert (await api.refused("PUT", "/settings/batch_size", {"value": 0}))[0] == 422
    assert (await api.refused("PUT", "/settings/other", {"value": 0}))[0] == 404
    assert kept == {"size": 7}


async def test_tokens_are_created_listed_and_revoked(api: ApiClient) -> None:
    made = await api.ok("POST", "/tokens", {"name": "shop", "role": "operator", "expires_in": 60}, user="bea")
    assert made["secret"]
    assert (made["token"]["name"], made["token"]["role"], made["token"]["by"]) == ("shop", "operator", "bea")
    [listed] = await api.get("/tokens")
    assert listed["state"] == "active"
    assert made["secret"] not in str(listed)
    [revoked] = await api.ok("DELETE", "/tokens/shop")
    assert revoked["state"] == "revoked"
    assert (await api.refused("DELETE", "/tokens/shop"))[0] == 404
    assert (await api.refused("POST", "/tokens", {"name": "shop", "role": "public"}))[:2] == (422, "role")


async def test_changes_are_in_the_audit_log(api: ApiClient) -> None:
    await api.ok("POST", "/queues/mail/pause", {"reason": "tea"}, user="bea")
    await api.get("/queues")
    await api.ok("POST", "/plan", {"task": "describe", "count": 3})
    await api.ok("POST", "/bulk/cancel", {"filter": {"queue": "mail"}})
    await api.refused("POST", "/queues/male/pause", {})
    [entry] = (await api.get("/audit"))["entries"]
    assert (entry["user"], entry["outcome"]) == ("bea", "done")
    assert entry["action"] == "POST /api/v1/queues/{queue}/pause"
    assert (entry["details"]["queue"], entry["details"]["reason"]) == ("mail", "tea")
    await api.ok("POST", "/bulk/cancel", {"filter": {"queue": "mail"}, "confirm": 0})
    assert len((await api.get("/audit?outcome=done"))["entries"]) == 2


async def test_webhooks_are_added_tested_and_removed(api: ApiClient) -> None:
    made = await api.ok("POST", "/webhooks", {"name": "shop", "url": "https://93.184.216.34/hook"})
    assert (made["by"], made["on"]) == ("ann", ["job.done", "job.failed"])
    assert [hook["name"] for hook in await api.get("/webhooks")] == ["shop"]
    tried = await api.ok("POST", "/webhooks/shop/test")
    assert (await api.get(f"/jobs/{tried['job']}"))["queue"] == "tidemill"
    assert (await api("DELETE", "/webhooks/shop")).status == 204
    assert (await api("DELETE", "/webhooks/shop")).status == 404
    assert (await api.refused("POST", "/webhooks", {"name": "x", "url": "https://x", "to": 1}))[:2] == (
        422,
        "to",
    )
    assert await api.get("/alerts") == []
