"""Documents on Redis: indexes agree with records, and no script blocks the server for long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.servers.redis import Redis
from tests.servers.redis_keys import RedisKeys
from tests.stores.redis.recount import find_differences
from tidemill.core.claims import ClaimRequest, QueueShare, Settlement
from tidemill.core.documents import MAX_JOBS_PER_ADVANCE, Advance, DocumentJob, DocumentKind, DocumentUpdate
from tidemill.core.filters import Filter
from tidemill.core.jobs import Error, FlowPosition, NewJob
from tidemill.core.operator_changes import CancelJobs, RetryJobs
from tidemill.core.outcomes import FinalFailure, Success
from tidemill.core.states import State
from tidemill.stores.redis import RedisStore, documents, keys
from tidemill.stores.redis.prune import MAX_JOBS_PER_PRUNE
from tidemill.testing import ManualClock

FLOW, SCHEDULE = DocumentKind.FLOW, DocumentKind.SCHEDULE


def advance_to(id_: str, expected: int = 0, *jobs: str, kind: DocumentKind = FLOW, **more: Any) -> Advance:
    fields = {"name": "dub", "state": "running", "record": b"{}", **more.pop("next", {})}
    parts = (NewJob(id=job, task="t", payload=b"{}", flow=FlowPosition(id_, "step", 0)) for job in jobs)
    made = tuple(DocumentJob("q", job) for job in parts)
    return Advance(kind=kind, id=id_, expected=expected, next=DocumentUpdate(**fields), jobs=made, **more)


def wanted(number: int, limit: int = 1) -> ClaimRequest:
    return ClaimRequest(worker="w", number=number, limit=limit, lease=30.0, shares=(QueueShare("q", limit),))


async def run(store: RedisStore, number: int, outcome: Any) -> None:
    jobs = (await store.claim(wanted(number))).jobs
    await store.settle([Settlement(job.id, job.fence, job.claim, outcome) for job in jobs])


async def create_documents(store: RedisStore) -> None:
    """Of the flow f, a is done, b has failed and c is ready; g has ended; s is due."""
    await store.advance(
        [advance_to("f", 0, *"abc"), advance_to("g"), advance_to("s", kind=SCHEDULE, next={"due_in": 5.0})]
    )
    await run(store, 1, Success(b"1"))
    await run(store, 2, FinalFailure(Error("Oops", "no")))
    await store.advance([advance_to("g", 1, next={"state": "done", "keep": 60.0})])


async def test_u2_jobs_settled_by_script_are_in_their_indexes(
    store: RedisStore, redis_server: Redis, redis_prefix: str, clock: ManualClock
) -> None:
    root = f"{{{redis_prefix}}}:"
    await create_documents(store)
    assert (find_differences(redis_server, root), await store.check()) == ([], ())
    await store.amend(Filter(flow="f", states=(State.FAILED,)), RetryJobs())
    await store.amend(Filter(ids=("c",)), CancelJobs())
    assert (find_differences(redis_server, root), await store.check()) == ([], ())
    (one,) = (await store.worklist(FLOW)).work_items
    await store.advance([advance_to("f", 1, taken=tuple(end.number for end in one.changes[1:3]))])
    clock.advance(60)
    await store.prune()
    assert (find_differences(redis_server, root), await store.check()) == ([], ())


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            "ZREMRANGEBYRANK done_flow_jobs:q 0 -1",
            "job 'a' is done but is not found as such in 'done_flow_jobs:q'",
        ),
        ("HDEL flow_job_states:f b", "job 'b' is failed but is not found as such in 'flow_job_states:f'"),
        ("DEL flow_jobs:f", "job 'c' is ready but is not found as such in 'flow_jobs:f'"),
        (
            "DEL due_documents:schedule",
            "schedule 's' is not found in 'due_documents:schedule', as its record says",
        ),
        (
            "ZADD due_documents:flow 1 f",
            "'due_documents:flow' lists the flow 'f', whose record says otherwise",
        ),
        (
            "ZADD document_expiry 1 flow:f",
            "'document_expiry' lists the flow 'f', whose record says otherwise",
        ),
        (
            "DEL document_index:flow:4:done:dub",
            "flow 'g' is not found in 'document_index:flow:4:done:dub', as its record says",
        ),
        ("HINCRBY document_counts:flow running 1", "flows: 2 are counted running, but there are 1"),
        ("HDEL documents:flow g", "flows: 2 are counted in all, but there are 1"),
        ("DEL marked_documents:flow", "a work item of 'flow:f' is on no worklist"),
        ("ZREMRANGEBYRANK worklist:flow:f 1 1", "a work item of 'flow:f' is on no worklist"),
    ],
)
async def test_u2_damage_is_named(
    store: RedisStore, redis_server: Redis, redis_prefix: str, damage: str, message: str
) -> None:
    await create_documents(store)
    command, key, *words = damage.split()
    with redis_server.client() as client:
        client.execute_command(command, f"{{{redis_prefix}}}:{key}", *words)
    found = await store.check()
    assert any(message in sentence for sentence in found), found


async def test_i6_one_advance_per_revision_is_applied(store: RedisStore) -> None:
    others = [await store.new_handle().open() for _ in range(8)]
    await store.advance([advance_to("f")])
    for revision in range(1, 6):
        answers = await asyncio.gather(
            *(
                other.advance([advance_to("f", revision, f"{revision}-{number}")])
                for number, other in enumerate(others)
            )
        )
        assert sum(answer.done for (answer,) in answers) == 1
    assert await store.counts() == {"q": {State.READY: 5}}
    assert await store.check() == ()
    for other in others:
        await other.close()


async def test_f10_a_flows_job_ends_by_one_script(store: RedisStore, redis_server: Redis) -> None:
    await store.advance([advance_to("f", 0, "a", "b")])
    await run(store, 1, Success())
    with redis_server.client() as client:
        client.config_resetstat()
        await run(store, 2, Success())
        assert client.info("commandstats")["cmdstat_evalsha"]["calls"] == 2  # one claim and one settle
    (one,) = (await store.worklist(FLOW)).work_items
    assert [(end.job, end.state) for end in one.changes] == [("a", State.DONE), ("b", State.DONE)]


async def test_f10_a_long_worklist_takes_several_calls(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "MAX_JOB_CHANGES", 4)
    for flow in ("f", "g", "h"):
        await store.advance([advance_to(flow, 0, *(f"{flow}{number}" for number in range(3)))])
    await store.advance([advance_to("due", next={"due_in": 0.0})])
    await store.amend(Filter(flow="g"), CancelJobs())
    await store.amend(Filter(flow="f"), CancelJobs())
    await store.amend(Filter(flow="h"), CancelJobs())
    found = (await store.worklist(FLOW)).work_items
    assert [(one.document.id, len(one.changes)) for one in found] == [
        ("g", 3),
        ("f", 3),
        ("h", 3),
        ("due", 0),
    ]


async def test_f21_many_documents_of_one_instant_are_listed_once(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "DOCUMENTS_PER_REQUEST", 3)
    names = [f"f{number}" for number in range(10)] + ["ÿ", "é", "~"]
    await store.advance([advance_to(name) for name in names])
    seen, cursor = [], None
    while True:
        page = await store.find_documents(FLOW, limit=4, cursor=cursor)
        seen += [document.id for document in page.documents]
        cursor = page.cursor
        if cursor is None:
            break
    assert seen == sorted(names, reverse=True)


async def test_j83_no_key_of_a_deleted_flow_is_left(
    store: RedisStore, clock: ManualClock, redis_keys: RedisKeys
) -> None:
    jobs = [f"j{number:03}" for number in range(230)]
    await store.advance([advance_to("f", 0, *jobs), advance_to("s", kind=SCHEDULE, next={"due_in": 1.0})])
    await store.amend(Filter(flow="f"), CancelJobs())
    await store.advance([advance_to("f", 1, next={"state": "done", "keep": 1.0})])
    await store.advance([Advance(kind=SCHEDULE, id="s", expected=1, next=None)])
    clock.advance(2)
    assert (await store.prune()).pruned == len(jobs) + 1
    kinds = (
        "flow_jobs",
        "flow_job_states",
        "cancelled_flow_jobs",
        "documents",
        "document_index",
        "due_documents",
        "stir",
        "document_expiry",
        "course_",
    )
    left = {key.rpartition("}:")[2] for key in redis_keys.left_over()}
    assert [key for key in left if key.startswith(kinds)] == []


class ServerCpuTime:
    """Seconds of CPU that the server has used: the machine may run other programs."""

    def __init__(self, server: Redis) -> None:
        self._server, self._before = server, 0.0
        self.since()

    def since(self) -> float:
        with self._server.client() as client:
            used: dict[str, Any] = client.info("cpu")
        now = float(used["used_cpu_user"]) + float(used["used_cpu_sys"])
        self._before, passed = now, now - self._before
        return passed


async def test_no_document_script_blocks_the_server(store: RedisStore, redis_server: Redis) -> None:
    """An advance with the most jobs takes 6 ms, the ends of these jobs 10 ms, the worklist 3 ms."""
    busy = ServerCpuTime(redis_server)
    await store.advance([advance_to("f", 0, *(f"j{number}" for number in range(MAX_JOBS_PER_ADVANCE)))])
    assert busy.since() < 0.02
    jobs = (await store.claim(wanted(1, MAX_JOBS_PER_ADVANCE))).jobs
    assert busy.since() < 0.02
    await store.settle([Settlement(job.id, job.fence, job.claim, Success(b"1")) for job in jobs])
    assert busy.since() < 0.02
    (one,) = (await store.worklist(FLOW)).work_items
    assert busy.since() < 0.02
    await store.advance([advance_to("f", 1, taken=tuple(end.number for end in one.changes))])
    assert busy.since() < 0.02
    assert len(one.changes) == MAX_JOBS_PER_ADVANCE


async def test_missing_documents_do_not_stop_pruning(store: RedisStore) -> None:
    """As on a server that lost some of its keys."""
    shard = store._handle.shard
    for number in range(MAX_JOBS_PER_PRUNE):
        await shard.ask("ZADD", shard.key(keys.DOCUMENT_EXPIRY), 1, keys.document(SCHEDULE, f"{number}"))
    assert (await asyncio.wait_for(store.prune(), 30)).pruned == 0
