"""What the lockstep machine draws from: few names, so that requests meet each other."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from hypothesis import strategies as st
from msgspec import UNSET

from tidemill.core.changes import Archive, Cancel, Change, Delete, Reprioritise, RetryNow, RunNow
from tidemill.core.filters import Filter
from tidemill.core.job import Error, Group, NewJob
from tidemill.core.outcomes import (
    Await,
    Cancelled,
    Crashed,
    Done,
    Fail,
    Outcome,
    Release,
    Retrying,
    Snooze,
    Split,
)
from tidemill.core.queues import QueueChanges, QueueSettings, Retention
from tidemill.core.states import State
from tidemill.core.uniqueness import Unique
from tidemill.testing.conformance.metering import NEEDS, single_needs

T = TypeVar("T")
MEETABLE = NEEDS[:-3]

QUEUES = ("a", "b")
WORKERS = ("w", "x")
OOPS = Error("ValueError", "oops", "a traceback")
FRESH = "fresh"
"""Stands for an id that was never used; the machine gives one."""


def mostly(usual: T, *others: T) -> st.SearchStrategy[T]:
    """The usual value half of the time, or the histories would be about exceptions only."""
    return st.sampled_from([usual] * len(others) + list(others))


queues = st.sampled_from(QUEUES)
workers = st.sampled_from(WORKERS)
ids = st.one_of(*[st.just(FRESH)] * 3, st.integers(1, 30).map("job-{}".format))
known_ids = st.integers(1, 30).map("job-{}".format)
limits = st.sampled_from((3, 5, 1, 0))
delays = st.sampled_from((0.0, 0.0, 0.0, 0.0, 1.0, 20.0))

uniques = st.builds(
    lambda key, on_conflict, lasts: Unique(key, on_conflict, **lasts),
    st.sampled_from(("u", "v")),
    st.sampled_from(("rerun", "replace", "merge", "skip")),
    st.sampled_from(({}, {}, {"period": 10.0}, {"at_most": 10.0}, {"period": 4000.0})),
)

new_jobs = st.builds(
    lambda job, version, words, **options: NewJob(
        id=job,
        task=f"task-{version % 2}",
        payload=msgspec.json.encode({"version": version, "in": [{"words": words}, {"words": "%"}]}),
        **options,
    ),
    ids,
    st.integers(0, 9),
    mostly("plain", "海上升明月", 'a "b" \\ c\nd'),
    priority=mostly(5, 1, 9),
    key=mostly(None, "k", "l"),
    delay=delays,
    at=st.sampled_from((None, None, None, None, None, None, 1_700_000_010.0)),
    expires=st.sampled_from((None, None, None, None, 2.0, 100.0)),
    timeout=mostly(None, 30.0),
    unique=st.one_of(st.none(), uniques),
    tags=mostly((), ("red",), ("red", "blue")),
    needs=mostly((), *MEETABLE),
)

groups = st.builds(Group, queues, st.lists(new_jobs, min_size=1, max_size=4).map(tuple))
shares = st.lists(st.tuples(queues, limits), min_size=1, max_size=3)

outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(Done, st.sampled_from((None, b'{"x":1}'))),
    st.builds(Retrying, delays, st.just(OOPS), mostly(None, 7)),
    st.builds(Snooze, delays),
    st.builds(Fail, st.just(OOPS)),
    st.builds(Cancelled, st.just("enough")),
    st.builds(Split, st.sampled_from(("1", "2"))),
    st.booleans().map(lambda unknown: Release(unknown=unknown, excused=not unknown)),
    st.builds(Await, st.lists(single_needs, min_size=1, max_size=2).map(tuple)),
    st.builds(Crashed, st.just(OOPS)),
)

changes: st.SearchStrategy[Change] = st.one_of(
    st.builds(Cancel),
    st.builds(Archive),
    st.builds(RetryNow),
    st.builds(RunNow),
    st.builds(Reprioritise, st.sampled_from((0, 5, 8))),
    st.builds(Delete),
)

texts = st.sampled_from(
    ("海", "升明", "上升明", "PLAIN", '"', "\\", "\n", "nd", "%", "oops", "BY HAND", "task-1", "")
)
FIELDS = (("version", "3"), ("in.words", "海上升明月"), ("in.words", "%"), ("in", "%"), ("in..words", ""))
states = st.lists(st.sampled_from(list(State)), max_size=3).map(tuple)
filters = st.one_of(
    st.builds(Filter, queue=st.one_of(st.none(), queues)),
    st.builds(Filter, states=states, queue=queues),
    st.builds(Filter, ids=st.lists(known_ids, max_size=6).map(tuple), states=st.one_of(st.none(), states)),
    st.builds(Filter, task=st.just("task-0"), tag=mostly(None, "blue")),
    st.builds(Filter, key=st.sampled_from(("k", "l", ""))),
    st.builds(Filter, flow=st.sampled_from(("f", "g", "none")), states=st.one_of(st.none(), states)),
    st.builds(
        Filter,
        since=mostly(1_700_000_005.0, None),
        until=mostly(None, 1_700_000_050.0),
        time=st.sampled_from(("created", "due", "finished")),
        states=st.one_of(st.none(), states),
    ),
    st.builds(Filter, text=texts, states=st.one_of(st.none(), states)),
    st.builds(Filter, fields=st.tuples(st.sampled_from(FIELDS)), queue=st.one_of(st.none(), queues)),
)

retentions = st.builds(Retention, st.sampled_from((None, 0.0, 50.0)), st.sampled_from((None, 0, 2)))
settings = st.builds(
    QueueSettings,
    weight=st.sampled_from((1, 1, 1, 0)),
    concurrency=mostly(None, 1, 3),
    key_concurrency=mostly(None, 1, 2),
    max_length=mostly(None, 6),
    crash_limit=st.sampled_from((1, 2, 3)),
    keep_done=retentions,
    keep_failed=retentions,
    keep_cancelled=retentions,
)

queue_changes = st.builds(
    QueueChanges,
    weight=st.sampled_from((UNSET, UNSET, 2, 0)),
    concurrency=st.sampled_from((UNSET, None, 1, 3)),
    key_concurrency=st.sampled_from((UNSET, None, 1, 2)),
    max_length=st.sampled_from((UNSET, None, 6)),
    keep_done=st.one_of(st.just(UNSET), retentions),
)
override_names = st.lists(st.sampled_from(("concurrency", "key_concurrency", "max_length")), max_size=2)
