"""Jobs over HTTP: enqueue, find, show and change."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from tests.web.api.api_client import ApiClient
from tidemill.cli.job_view import job_data
from tidemill.testing import ManualClock


async def test_a_job_is_enqueued_run_and_shown(api: ApiClient) -> None:
    id_ = await api.sent("bob", priority=2, tags=["spring"], key="b", trace="t-1")
    assert (await api.get(f"/jobs/{id_}"))["state"] == "ready"
    await api.work()
    job = await api.get(f"/jobs/{id_}")
    assert job["payload"] == {"to": "bob", "copies": 1}
    assert (job["state"], job["result"], job["attempts"], job["attempt"]) == ("done", "1 to bob", 1, None)
    assert (job["priority"], job["tags"], job["key"], job["trace"]) == (2, ["spring"], "b", "t-1")
    assert [line["line"] for line in job["log"]] == ["to bob"]


async def test_a_job_has_the_fields_that_the_command_line_prints(api: ApiClient) -> None:
    id_ = await api.sent()
    [stored] = await api.app.store.get([id_])
    assert stored is not None
    shown = await api.get(f"/jobs/{id_}")
    assert list(shown) == [*job_data(stored), "failed_attempts", "log", "checkpoints"]
    [listed] = (await api.get("/jobs"))["jobs"]
    assert list(listed) == list(job_data(stored))


async def test_a_failed_job_shows_its_error(api: ApiClient) -> None:
    id_ = await api.sent("nobody")
    await api.work()
    job = await api.get(f"/jobs/{id_}")
    assert (job["state"], job["error"]["type"]) == ("failed", "ConnectionError")
    assert job["failed_attempts"][0]["error"]["message"] == "nobody home"
    assert "nobody home" in (await api.get(f"/jobs/{id_}/explanation"))["sentence"]
    assert [dead["id"] for dead in (await api.get("/dead-letters?queue=mail&text=home"))["jobs"]] == [id_]
    assert (await api.ok("POST", f"/dead-letters/{id_}/retry"))["state"] == "ready"
    assert await api.refused("POST", f"/dead-letters/{id_}/retry") == (
        409,
        "",
        f"job '{id_}' is ready and no dead letter",
    )


FOUND_BY = {
    "id={id}": True,
    "id=other&id={id}": True,
    "id=other": False,
    "id_prefix={prefix}": True,
    "queue=mail": True,
    "queue=feeds": False,
    "state=scheduled&state=ready": True,
    "state=done": False,
    "task=send": True,
    "task=describe": False,
    "key=k": True,
    "key=l": False,
    "tag=red": True,
    "tag=blue": False,
    "flow=none": False,
    "since=0": True,
    "until=1": False,
    "since=0&time=finished": False,
    "text=ANN": True,
    "text=bob": False,
    "field=to=ann": True,
    "field=to=bob": False,
}


async def test_jobs_are_found_by_every_field_of_a_filter(api: ApiClient) -> None:
    id_ = await api.sent("ann", key="k", tags=["red"])
    for query, found in FOUND_BY.items():
        query_string = query.format(id=id_, prefix=id_[:8])
        page = await api.get(f"/jobs?{query_string}")
        assert [job["id"] for job in page["jobs"]] == [id_] * found, query_string
        assert (await api.get(f"/bulk/count?{query_string}")) == {"matching": int(found), "more": False}, (
            query_string
        )


async def test_pages_follow_each_other(api: ApiClient) -> None:
    sent = [await api.sent(str(number)) for number in range(5)]
    met: list[str] = []
    cursor = ""
    while cursor is not None:
        page = await api.get(f"/jobs?limit=2&cursor={cursor}")
        met += [job["id"] for job in page["jobs"]]
        cursor = page["cursor"]
    assert met == sent[::-1]


async def test_one_job_is_changed(api: ApiClient) -> None:
    id_ = await api.sent(delay=3600)
    assert (await api.ok("POST", f"/jobs/{id_}/reprioritise", {"priority": 1}))["priority"] == 1
    assert (await api.ok("POST", f"/jobs/{id_}/run"))["state"] == "ready"
    cancelled = await api.ok("POST", f"/jobs/{id_}/cancel", {}, user="bea")
    assert (cancelled["state"], cancelled["reason"]) == ("cancelled", "cancelled by bea")
    assert (await api.ok("POST", f"/jobs/{id_}/retry"))["generation"] == 1
    archived = await api.ok("POST", f"/jobs/{id_}/archive", {"reason": "not now"})
    assert (archived["state"], archived["reason"]) == ("failed", "not now")
    assert (await api("DELETE", f"/jobs/{id_}")).status == 204
    assert (await api("GET", f"/jobs/{id_}")).status == 404


@pytest.mark.parametrize(
    ("verb", "body", "says"),
    [
        ("retry", None, "only a job that has ended can be retried"),
        ("run", None, "only a scheduled job can be run now"),
    ],
)
async def test_a_change_that_does_not_apply_is_a_conflict(
    api: ApiClient, verb: str, body: Any, says: str
) -> None:
    id_ = await api.sent()
    assert await api.refused("POST", f"/jobs/{id_}/{verb}", body) == (
        409,
        "",
        f"job '{id_}' is ready: {says}",
    )
    assert (await api.get(f"/jobs/{id_}"))["generation"] == 0


async def test_an_id_may_have_any_character(api: ApiClient) -> None:
    strange = "dub:7/extract/0?# é%2F"
    assert await api.sent(id=strange) == strange
    path = quote(strange, safe="")
    assert (await api.get(f"/jobs/{path}"))["id"] == strange
    assert (await api.ok("POST", f"/jobs/{path}/cancel", {}))["state"] == "cancelled"


async def test_a_bulk_enqueue_has_a_verdict_per_job(api: ApiClient) -> None:
    await api.ok("PATCH", "/queues/mail/settings", {"max_length": 2})
    job = {"task": "send", "payload": {"to": "ann"}, "unique": {"key": "u"}}
    jobs = [
        job,
        {"task": "sent"},
        job,
        {"task": "send", "payload": {"to": 7}},
        {"task": "send", "payload": {"to": "bob"}},
        {"task": "send", "payload": {"to": "cleo"}},
        {"task": "describe", "payload": {"text": "t"}},
    ]
    answer = await api.ok("POST", "/bulk/enqueue", {"jobs": jobs})
    verdicts = answer["verdicts"]
    assert [one["verdict"] for one in verdicts] == [
        "accepted",
        "invalid",
        "existing",
        "invalid",
        "accepted",
        "full",
        "accepted",
    ]
    assert answer["accepted"] == 3
    assert verdicts[2]["id"] == verdicts[0]["id"]
    assert "did you mean 'send'" in verdicts[1]["problem"]
    assert verdicts[3]["problem"].startswith("payload.to: ")
    assert verdicts[5]["id"] is None
    assert len((await api.get("/jobs"))["jobs"]) == 3


async def test_a_bulk_change_needs_the_confirmed_number(api: ApiClient) -> None:
    for number in range(3):
        await api.sent(str(number))
    which = {"queue": "mail", "states": ["ready"]}
    preview = await api.ok("POST", "/bulk/cancel", {"filter": which})
    assert preview == {"matching": 3, "changed": None, "unchanged": None, "moved": None}
    await api.sent("one more")
    status, field, sentence = await api.refused("POST", "/bulk/cancel", {"filter": which, "confirm": 3})
    assert (status, field) == (409, "confirm")
    assert "3 jobs were confirmed and 4 match now; nothing was changed" in sentence
    assert (await api.get("/bulk/count?state=ready"))["matching"] == 4
    done = await api.ok("POST", "/bulk/cancel", {"filter": which, "confirm": 4, "reason": "spring"})
    assert done == {"matching": 4, "changed": 4, "unchanged": 0, "moved": 0}
    assert {job["reason"] for job in (await api.get("/jobs"))["jobs"]} == {"spring"}


async def test_an_empty_filter_is_refused(api: ApiClient) -> None:
    await api.sent()
    assert (await api.refused("POST", "/bulk/delete", {"filter": {}, "confirm": 1}))[0] == 422
    assert (await api.refused("POST", "/bulk/delete", {"filter": {"time": "due"}, "confirm": 1}))[0] == 422
    assert (await api.get("/bulk/count"))["matching"] == 1


async def test_all_dead_letters_are_retried(api: ApiClient) -> None:
    for _ in range(3):
        await api.sent("nobody")
    await api.work()
    done = await api.sent("ann")
    await api.work()
    assert (await api.ok("POST", "/dead-letters/retry", {}))["matching"] == 3
    assert (await api.ok("POST", "/dead-letters/retry", {"confirm": 3}))["changed"] == 3
    assert (await api.get(f"/jobs/{done}"))["state"] == "done"
    assert (await api.get("/bulk/count?state=ready"))["matching"] == 3


async def test_when_a_job_starts(api: ApiClient, clock: ManualClock) -> None:
    later = await api.sent(delay=60)
    at = await api.sent(at=clock.wall() + 30)
    assert (await api.get(f"/jobs/{later}"))["due"] == pytest.approx(clock.wall() + 60)
    assert (await api.get(f"/jobs/{at}"))["due"] == pytest.approx(clock.wall() + 30)
    assert (await api.refused("POST", "/jobs", {"task": "describe", "delay": 1, "at": 5}))[1] == "at"


async def test_the_audit_log_names_new_jobs(api: ApiClient) -> None:
    id_ = await api.sent(unique={"key": "a"})
    assert await api.sent(unique={"key": "a"}) == id_
    many = await api.ok("POST", "/bulk/enqueue", {"jobs": [{"task": "anything", "payload": {"what": 1}}]})
    entries = (await api.app.auth.audit.page()).entries
    details = [
        {name: entry.details.get(name) for name in ("job", "existing job", "jobs")} for entry in entries
    ]
    assert details == [
        {"job": None, "existing job": None, "jobs": f'["{many["verdicts"][0]["id"]}"]'},
        {"job": None, "existing job": id_, "jobs": None},
        {"job": id_, "existing job": None, "jobs": None},
    ]
