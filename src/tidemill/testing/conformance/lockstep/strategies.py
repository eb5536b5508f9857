"""Hypothesis strategies of the lockstep machine: jobs, queues, filters, pools, refusals."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from hypothesis import strategies as st
from msgspec import UNSET

from tidemill.core.calendars import Day
from tidemill.core.feedback import Observation, PoolUsage, Reason, Refusal, UsageReport
from tidemill.core.filters import Filter
from tidemill.core.jobs import Error, JobGroup, NewJob
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.operator_changes import (
    ArchiveJobs,
    CancelJobs,
    DeleteJobs,
    OperatorChange,
    ReprioritiseJobs,
    RetryJobs,
    RunJobsNow,
)
from tidemill.core.outcomes import (
    Cancellation,
    Crash,
    FinalFailure,
    JobRelease,
    Outcome,
    RetryLater,
    SmallerBatch,
    Snooze,
    Success,
    UnitWait,
)
from tidemill.core.pools import LimitChanges, PoolSettings
from tidemill.core.queues import QueueChanges, QueueSettings, Retention
from tidemill.core.states import State
from tidemill.core.unique_keys import Unique

REQUESTS_PER_MINUTE, TOKENS = "requests per minute", "tokens per minute"
POOL_SETTINGS = {
    "model": PoolSettings(
        limits=(
            Limit.requests(6, per="minute"),
            Limit.tokens(1_000, per="minute"),
            Limit.requests(20, per=Day("America/Los_Angeles")),
        ),
        reserved_share=0.25,
    ),
    "voice": PoolSettings(limits=(Limit.tokens(900, per="minute", shape="bucket"), Limit.concurrent(2))),
    "paced": PoolSettings(limits=(Limit.requests(12, per="minute", shape="paced"),), probe_every=30.0),
    "site": PoolSettings(limits=(Limit.requests(2, per=10), Limit.concurrent(1)), keyed=True),
}
"""The pools that every history declares first."""

DECLARATIONS = (
    *POOL_SETTINGS.items(),
    ("model", PoolSettings(limits=(Limit.requests(3, per="minute"), Limit.tokens(400, per="minute")))),
    ("voice", PoolSettings(limits=(Limit.concurrent(1),))),
    ("voice", PoolSettings(limits=(Limit.tokens(900, per="minute"), Limit.concurrent(3)))),
    ("site", PoolSettings(limits=(Limit.requests(3, per=10),), keyed=True)),
    ("site", PoolSettings(limits=(Limit.requests(1, per=10), Limit.concurrent(1)), keyed=True)),
    ("site", PoolSettings(limits=())),
    ("site", PoolSettings(limits=(Limit.requests(3, per=10),))),
    ("model", PoolSettings(limits=(Limit.requests(3, per="minute"),), keyed=True)),
)
declarations = st.sampled_from(DECLARATIONS)

NEED_CHOICES = (
    (Need("model", None, {"tokens": 100}),),
    (Need("model", None, {"tokens": 600}),),
    (Need("voice", None, {"tokens": 300}),),
    (Need("paced"),),
    (Need("site", "a"),),
    (Need("site", "b"),),
    (Need("site", "a"), Need("model", None, {"tokens": 50})),
    (Need("model", None, {"tokens": 10}), Need("voice", None, {"tokens": 10}), Need("site", "b")),
    (Need("nobody"),),
    (Need("site"),),
    (Need("model", None, {"tokens": 2_000}),),
)
"""The last costs can never be granted."""
needs = st.one_of(st.just(()), st.sampled_from(NEED_CHOICES))
single_needs = st.sampled_from([need for needs in NEED_CHOICES for need in needs])

pool_keys = st.sampled_from((("model", None), ("voice", None), ("paced", None), ("site", "a"), ("site", "b")))
any_pool_keys = st.one_of(
    pool_keys, pool_keys, pool_keys, st.sampled_from((("nobody", None), ("site", None), ("model", "a")))
)

OVERRIDABLE_LIMITS = (REQUESTS_PER_MINUTE, TOKENS)
limit_names = st.lists(st.sampled_from(OVERRIDABLE_LIMITS), max_size=2)
amounts = st.dictionaries(
    st.sampled_from(OVERRIDABLE_LIMITS), st.sampled_from((1.0, 5.0, 2_000.0)), max_size=2
)
pool_changes = st.builds(LimitChanges, amounts=amounts)

site_keys = st.one_of(st.sampled_from((("site", "a"), ("site", "b"))), any_pool_keys)
KEY_LIMITS = ("requests per 10 s", "calls at once")
key_limit_names = st.lists(st.sampled_from(KEY_LIMITS), max_size=2)
key_changes = st.builds(
    LimitChanges,
    amounts=st.dictionaries(st.sampled_from(KEY_LIMITS), st.sampled_from((1.0, 2.0, 4.0)), max_size=2),
)

RESET_TIME = 1_700_000_100.0
refusals = st.builds(
    Refusal,
    reason=st.sampled_from(list(Reason)),
    unit=st.sampled_from((None, None, "tokens")),
    retry_after=st.sampled_from((None, 5.0, 40.0)),
    resets_at=st.sampled_from((None, None, RESET_TIME)),
    slow=st.booleans(),
    text=st.sampled_from(("", "too fast 慢一点")),
)
observations = st.builds(
    lambda pool_key, remaining, amounts, refusal: Observation(
        pool=pool_key[0],
        key=pool_key[1],
        remaining=remaining,
        amounts=amounts,
        resets=dict.fromkeys(remaining, RESET_TIME) if amounts else {},
        refusal=refusal,
    ),
    any_pool_keys,
    st.sampled_from(({}, {}, {REQUESTS_PER_MINUTE: 2.0}, {TOKENS: 150.0})),
    st.sampled_from(({}, {}, {}, {REQUESTS_PER_MINUTE: 2.0}, {REQUESTS_PER_MINUTE: 4.0}, {TOKENS: 300.0})),
    st.one_of(st.none(), refusals),
)
usages = st.builds(
    lambda pool_key, units: PoolUsage(pool=pool_key[0], key=pool_key[1], units=units),
    pool_keys,
    st.sampled_from(
        ({"tokens": 30.0}, {"tokens": 900.0}, {"requests": 0.0}, {"tokens": 0.5, "requests": 2.0})
    ),
)
attempt_usages = st.one_of(
    st.none(),
    st.builds(
        UsageReport,
        made=st.sampled_from((True, True, False)),
        is_success=st.booleans(),
        usages=st.lists(usages, max_size=2).map(tuple),
        observations=st.sampled_from(((),)),
    ),
    st.builds(
        UsageReport, is_success=st.booleans(), observations=st.lists(observations, max_size=2).map(tuple)
    ),
)


ValueT = TypeVar("ValueT")
FEASIBLE_NEEDS = NEED_CHOICES[:-3]

QUEUES = ("a", "b")
WORKERS = ("w", "x")
STRATEGY_ERROR = Error("ValueError", "oops", "a traceback")
FRESH_ID = "fresh"
"""Stands for an unused id; the machine replaces it."""


def usually(usual: ValueT, *others: ValueT) -> st.SearchStrategy[ValueT]:
    """Returns a strategy that draws `usual` half of the time, otherwise one of `others`. Without it,
    histories would consist only of special cases."""
    return st.sampled_from([usual] * len(others) + list(others))


queues = st.sampled_from(QUEUES)
workers = st.sampled_from(WORKERS)
ids = st.one_of(*[st.just(FRESH_ID)] * 3, st.integers(1, 30).map("job-{}".format))
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
    usually("plain", "海上升明月", 'a "b" \\ c\nd'),
    priority=usually(5, 1, 9),
    key=usually(None, "k", "l"),
    delay=delays,
    at=st.sampled_from((None, None, None, None, None, None, 1_700_000_010.0)),
    expires=st.sampled_from((None, None, None, None, 2.0, 100.0)),
    timeout=usually(None, 30.0),
    unique=st.one_of(st.none(), uniques),
    tags=usually((), ("red",), ("red", "blue")),
    needs=usually((), *FEASIBLE_NEEDS),
)

groups = st.builds(JobGroup, queues, st.lists(new_jobs, min_size=1, max_size=4).map(tuple))
shares = st.lists(st.tuples(queues, limits), min_size=1, max_size=3)

outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(Success, st.sampled_from((None, b'{"x":1}'))),
    st.builds(RetryLater, delays, st.just(STRATEGY_ERROR), usually(None, 7)),
    st.builds(Snooze, delays),
    st.builds(FinalFailure, st.just(STRATEGY_ERROR)),
    st.builds(Cancellation, st.just("enough")),
    st.builds(SmallerBatch, st.sampled_from(("1", "2"))),
    st.booleans().map(lambda unknown: JobRelease(unknown=unknown, excused=not unknown)),
    st.builds(UnitWait, st.lists(single_needs, min_size=1, max_size=2).map(tuple)),
    st.builds(Crash, st.just(STRATEGY_ERROR)),
)

changes: st.SearchStrategy[OperatorChange] = st.one_of(
    st.builds(CancelJobs),
    st.builds(ArchiveJobs),
    st.builds(RetryJobs),
    st.builds(RunJobsNow),
    st.builds(ReprioritiseJobs, st.sampled_from((0, 5, 8))),
    st.builds(DeleteJobs),
)

search_texts = st.sampled_from(
    ("海", "升明", "上升明", "PLAIN", '"', "\\", "\n", "nd", "%", "oops", "BY HAND", "task-1", "")
)
SEARCH_FIELDS = (
    ("version", "3"),
    ("in.words", "海上升明月"),
    ("in.words", "%"),
    ("in", "%"),
    ("in..words", ""),
)
states = st.lists(st.sampled_from(list(State)), max_size=3).map(tuple)
filters = st.one_of(
    st.builds(Filter, queue=st.one_of(st.none(), queues)),
    st.builds(Filter, states=states, queue=queues),
    st.builds(Filter, ids=st.lists(known_ids, max_size=6).map(tuple), states=st.one_of(st.none(), states)),
    st.builds(Filter, task=st.just("task-0"), tag=usually(None, "blue")),
    st.builds(Filter, key=st.sampled_from(("k", "l", ""))),
    st.builds(Filter, flow=st.sampled_from(("f", "g", "none")), states=st.one_of(st.none(), states)),
    st.builds(
        Filter,
        since=usually(1_700_000_005.0, None),
        until=usually(None, 1_700_000_050.0),
        time=st.sampled_from(("created", "due", "finished")),
        states=st.one_of(st.none(), states),
    ),
    st.builds(Filter, text=search_texts, states=st.one_of(st.none(), states)),
    st.builds(Filter, fields=st.tuples(st.sampled_from(SEARCH_FIELDS)), queue=st.one_of(st.none(), queues)),
)

retentions = st.builds(Retention, st.sampled_from((None, 0.0, 50.0)), st.sampled_from((None, 0, 2)))
queue_settings = st.builds(
    QueueSettings,
    weight=st.sampled_from((1, 1, 1, 0)),
    concurrency=usually(None, 1, 3),
    key_concurrency=usually(None, 1, 2),
    max_length=usually(None, 6),
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
