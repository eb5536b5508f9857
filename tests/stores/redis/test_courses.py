"""Flows and schedules on Redis: indexes agree with records, and no step keeps others waiting."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.servers.keys import Keys
from tests.servers.redis import Redis
from tests.stores.redis.recounting import wrong
from tidemill.core.changes import Cancel, RetryNow
from tidemill.core.claims import ClaimRequest, Settlement, Share
from tidemill.core.courses import JOBS_AT_ONCE, Advance, Kind, Made, Next
from tidemill.core.filters import Filter
from tidemill.core.flow_jobs import InFlow
from tidemill.core.job import Error, NewJob
from tidemill.core.outcomes import Done, Fail
from tidemill.core.states import State
from tidemill.stores.redis import RedisStore, courses, keys
from tidemill.stores.redis.prune_courses import AT_ONCE
from tidemill.testing import ManualClock

FLOW, SCHEDULE = Kind.FLOW, Kind.SCHEDULE


def going(id_: str, expected: int = 0, *jobs: str, kind: Kind = FLOW, **more: Any) -> Advance:
    fields = {"name": "dub", "state": "running", "record": b"{}", **more.pop("next", {})}
    parts = (NewJob(id=job, task="t", payload=b"{}", flow=InFlow(id_, "step", 0)) for job in jobs)
    made = tuple(Made("q", job) for job in parts)
    return Advance(kind=kind, id=id_, expected=expected, next=Next(**fields), jobs=made, **more)


def wanted(number: int, limit: int = 1) -> ClaimRequest:
    return ClaimRequest(worker="w", number=number, limit=limit, lease=30.0, shares=(Share("q", limit),))


async def run(store: RedisStore, number: int, outcome: Any) -> None:
    jobs = (await store.claim(wanted(number))).jobs
    await store.settle([Settlement(job.id, job.fence, job.claim, outcome) for job in jobs])


async def some_of_each(store: RedisStore) -> None:
    """Of the flow f, a is done, b has failed and c is ready; g has ended; s is due."""
    await store.advance([going("f", 0, *"abc"), going("g"), going("s", kind=SCHEDULE, next={"due_in": 5.0})])
    await run(store, 1, Done(b"1"))
    await run(store, 2, Fail(Error("Oops", "no")))
    await store.advance([going("g", 1, next={"state": "done", "keep": 60.0})])


async def test_u2_what_a_script_settles_stands_where_its_record_says(
    store: RedisStore, redis_server: Redis, redis_prefix: str, clock: ManualClock
) -> None:
    root = f"{{{redis_prefix}}}:"
    await some_of_each(store)
    assert (wrong(redis_server, root), await store.check()) == ([], ())
    await store.amend(Filter(flow="f", states=(State.FAILED,)), RetryNow())
    await store.amend(Filter(ids=("c",)), Cancel())
    assert (wrong(redis_server, root), await store.check()) == ([], ())
    (one,) = (await store.agenda(FLOW)).stirred
    await store.advance([going("f", 1, taken=tuple(end.number for end in one.ends[1:3]))])
    clock.advance(60)
    await store.prune()
    assert (wrong(redis_server, root), await store.check()) == ([], ())


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        ("ZREMRANGEBYRANK done_parts:q 0 -1", "job 'a' is done but is not found as such in 'done_parts:q'"),
        ("HDEL part_ends:f b", "job 'b' is failed but is not found as such in 'part_ends:f'"),
        ("DEL parts:f", "job 'c' is ready but is not found as such in 'parts:f'"),
        ("DEL dues:schedule", "schedule 's' is not found in 'dues:schedule', as its record says"),
        ("ZADD dues:flow 1 f", "'dues:flow' lists the flow 'f', whose record says otherwise"),
        ("ZADD outlived 1 flow:f", "'outlived' lists the flow 'f', whose record says otherwise"),
        (
            "DEL listed:flow:4:done:dub",
            "flow 'g' is not found in 'listed:flow:4:done:dub', as its record says",
        ),
        ("HINCRBY course_counts:flow running 1", "flows: 2 are counted running, but there are 1"),
        ("HDEL courses:flow g", "flows: 2 are counted in all, but there are 1"),
        ("DEL stirred:flow", "an end is kept of 'flow:f' that is on no agenda"),
        ("ZREMRANGEBYRANK stirs:flow:f 1 1", "an end is kept of 'flow:f' that is on no agenda"),
    ],
)
async def test_u2_damage_is_named(
    store: RedisStore, redis_server: Redis, redis_prefix: str, harm: str, says: str
) -> None:
    await some_of_each(store)
    command, key, *words = harm.split()
    with redis_server.client() as client:
        client.execute_command(command, f"{{{redis_prefix}}}:{key}", *words)
    found = await store.check()
    assert any(says in sentence for sentence in found), found


async def test_i6_of_those_that_advance_the_same_revision_one_does(store: RedisStore) -> None:
    others = [await store.another().open() for _ in range(8)]
    await store.advance([going("f")])
    for revision in range(1, 6):
        answers = await asyncio.gather(
            *(
                other.advance([going("f", revision, f"{revision}-{number}")])
                for number, other in enumerate(others)
            )
        )
        assert sum(answer.done for (answer,) in answers) == 1
    assert await store.counts() == {"q": {State.READY: 5}}
    assert await store.check() == ()
    for other in others:
        await other.close()


async def test_f10_a_flows_job_ends_by_one_script(store: RedisStore, redis_server: Redis) -> None:
    await store.advance([going("f", 0, "a", "b")])
    await run(store, 1, Done())
    with redis_server.client() as client:
        client.config_resetstat()
        await run(store, 2, Done())
        assert client.info("commandstats")["cmdstat_evalsha"]["calls"] == 2  # it is claimed, and settled
    (one,) = (await store.agenda(FLOW)).stirred
    assert [(end.job, end.state) for end in one.ends] == [("a", State.DONE), ("b", State.DONE)]


async def test_f10_a_long_agenda_is_read_in_pieces(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(courses, "ENDS_OF_ALL", 4)
    for flow in ("f", "g", "h"):
        await store.advance([going(flow, 0, *(f"{flow}{number}" for number in range(3)))])
    await store.advance([going("due", next={"due_in": 0.0})])
    await store.amend(Filter(flow="g"), Cancel())
    await store.amend(Filter(flow="f"), Cancel())
    await store.amend(Filter(flow="h"), Cancel())
    found = (await store.agenda(FLOW)).stirred
    assert [(one.course.id, len(one.ends)) for one in found] == [("g", 3), ("f", 3), ("h", 3), ("due", 0)]


async def test_f21_very_many_that_began_at_the_same_instant(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(courses, "AT_ONCE", 3)
    names = [f"f{number}" for number in range(10)] + ["ÿ", "é", "~"]
    await store.advance([going(name) for name in names])
    seen, cursor = [], None
    while True:
        page = await store.find_courses(FLOW, limit=4, cursor=cursor)
        seen += [course.id for course in page.courses]
        cursor = page.cursor
        if cursor is None:
            break
    assert seen == sorted(names, reverse=True)


async def test_j83_when_a_flow_is_gone_nothing_is_left_of_it(
    store: RedisStore, clock: ManualClock, redis_keys: Keys
) -> None:
    jobs = [f"j{number:03}" for number in range(230)]
    await store.advance([going("f", 0, *jobs), going("s", kind=SCHEDULE, next={"due_in": 1.0})])
    await store.amend(Filter(flow="f"), Cancel())
    await store.advance([going("f", 1, next={"state": "done", "keep": 1.0})])
    await store.advance([Advance(kind=SCHEDULE, id="s", expected=1, next=None)])
    clock.advance(2)
    assert (await store.prune()).pruned == len(jobs) + 1
    kinds = (
        "parts",
        "part_ends",
        "cancelled_parts",
        "courses",
        "listed",
        "dues",
        "stir",
        "outlived",
        "course_",
    )
    left = {key.rpartition("}:")[2] for key in redis_keys.left_over()}
    assert [key for key in left if key.startswith(kinds)] == []


class Busy:
    """Seconds of its processor that the server has used: others may be at work on the machine."""

    def __init__(self, server: Redis) -> None:
        self._server, self._before = server, 0.0
        self.since()

    def since(self) -> float:
        with self._server.client() as client:
            used: dict[str, Any] = client.info("cpu")
        now = float(used["used_cpu_user"]) + float(used["used_cpu_sys"])
        self._before, passed = now, now - self._before
        return passed


async def test_no_step_keeps_others_waiting(store: RedisStore, redis_server: Redis) -> None:
    """An advance that makes as many jobs as one may takes 6 ms, their ends 10, the agenda 3."""
    busy = Busy(redis_server)
    await store.advance([going("f", 0, *(f"j{number}" for number in range(JOBS_AT_ONCE)))])
    assert busy.since() < 0.02
    jobs = (await store.claim(wanted(1, JOBS_AT_ONCE))).jobs
    assert busy.since() < 0.02
    await store.settle([Settlement(job.id, job.fence, job.claim, Done(b"1")) for job in jobs])
    assert busy.since() < 0.02
    (one,) = (await store.agenda(FLOW)).stirred
    assert busy.since() < 0.02
    await store.advance([going("f", 1, taken=tuple(end.number for end in one.ends))])
    assert busy.since() < 0.02
    assert len(one.ends) == JOBS_AT_ONCE


async def test_names_of_nothing_do_not_keep_pruning_for_ever(store: RedisStore) -> None:
    """Of a server that lost some of its keys."""
    shard = store._handle.shard
    for number in range(AT_ONCE):
        await shard.ask("ZADD", shard.key(keys.OUTLIVED), 1, keys.course(SCHEDULE, f"{number}"))
    assert (await asyncio.wait_for(store.prune(), 30)).pruned == 0
