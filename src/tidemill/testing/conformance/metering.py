"""What the lockstep machine draws of pools: few and small ones, so that they are soon full."""

from __future__ import annotations

from hypothesis import strategies as st

from tidemill.core.calendars import Day
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.pools import PoolChanges, PoolSettings
from tidemill.core.refusals import Reason, Refusal
from tidemill.core.spending import Observation, Spent, Usage

PER_MINUTE, TOKENS = "requests per minute", "tokens per minute"
POOLS = {
    "model": PoolSettings(
        limits=(
            Limit.requests(6, per="minute"),
            Limit.tokens(1_000, per="minute"),
            Limit.requests(20, per=Day("America/Los_Angeles")),
        ),
        held_back=0.25,
    ),
    "voice": PoolSettings(limits=(Limit.tokens(900, per="minute", shape="bucket"), Limit.concurrent(2))),
    "paced": PoolSettings(limits=(Limit.requests(12, per="minute", shape="paced"),), probe_every=30.0),
    "site": PoolSettings(limits=(Limit.requests(2, per=10), Limit.concurrent(1)), keyed=True),
}
"""Declared before anything else."""

DECLARED = (
    *POOLS.items(),
    ("model", PoolSettings(limits=(Limit.requests(3, per="minute"), Limit.tokens(400, per="minute")))),
    ("voice", PoolSettings(limits=(Limit.concurrent(1),))),
    ("voice", PoolSettings(limits=(Limit.tokens(900, per="minute"), Limit.concurrent(3)))),
    ("site", PoolSettings(limits=(Limit.requests(3, per=10),), keyed=True)),
    ("site", PoolSettings(limits=())),
    ("site", PoolSettings(limits=(Limit.requests(3, per=10),))),
    ("model", PoolSettings(limits=(Limit.requests(3, per="minute"),), keyed=True)),
)
declared = st.sampled_from(DECLARED)

NEEDS = (
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
"""The last ones can never be met."""
needs = st.one_of(st.just(()), st.sampled_from(NEEDS))
single_needs = st.sampled_from([need for needs in NEEDS for need in needs])

places = st.sampled_from((("model", None), ("voice", None), ("paced", None), ("site", "a"), ("site", "b")))
any_places = st.one_of(
    places, places, places, st.sampled_from((("nobody", None), ("site", None), ("model", "a")))
)

amounts = st.dictionaries(
    st.sampled_from((PER_MINUTE, TOKENS)), st.sampled_from((1.0, 5.0, 2_000.0)), max_size=2
)
pool_changes = st.one_of(st.none(), st.builds(PoolChanges, amounts=amounts))

RESETS = 1_700_000_100.0
refusals = st.builds(
    Refusal,
    reason=st.sampled_from(list(Reason)),
    unit=st.sampled_from((None, None, "tokens")),
    retry_after=st.sampled_from((None, 5.0, 40.0)),
    resets_at=st.sampled_from((None, None, RESETS)),
    slow=st.booleans(),
    text=st.sampled_from(("", "too fast 慢一点")),
)
observations = st.builds(
    lambda place, remaining, amounts, refusal: Observation(
        pool=place[0],
        key=place[1],
        remaining=remaining,
        amounts=amounts,
        resets=dict.fromkeys(remaining, RESETS) if amounts else {},
        refusal=refusal,
    ),
    any_places,
    st.sampled_from(({}, {}, {PER_MINUTE: 2.0}, {TOKENS: 150.0})),
    st.sampled_from(({}, {}, {}, {PER_MINUTE: 2.0}, {PER_MINUTE: 4.0}, {TOKENS: 300.0})),
    st.one_of(st.none(), refusals),
)
usages = st.builds(
    lambda place, units: Usage(pool=place[0], key=place[1], units=units),
    places,
    st.sampled_from(
        ({"tokens": 30.0}, {"tokens": 900.0}, {"requests": 0.0}, {"tokens": 0.5, "requests": 2.0})
    ),
)
spents = st.one_of(
    st.none(),
    st.builds(
        Spent,
        made=st.sampled_from((True, True, False)),
        well=st.booleans(),
        usages=st.lists(usages, max_size=2).map(tuple),
        observations=st.sampled_from(((),)),
    ),
    st.builds(Spent, well=st.booleans(), observations=st.lists(observations, max_size=2).map(tuple)),
)
