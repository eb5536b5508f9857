"""Pools as a program declares them, and the needs of its jobs."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill import ConfigurationError, Day, InvalidJob, Limit, Month, Pool, Tidemill, TimeOfDay, Week
from tidemill.core.needs import Need

MINUTE = Limit.requests(10, per="minute")
TOKENS = Limit.tokens(1000, per="minute")


@pytest.fixture
def code() -> Tidemill:
    return Tidemill("memory://")


def needs(task: Any, *args: Any, **kwargs: Any) -> tuple[Need, ...]:
    found: tuple[Need, ...] = task.job(*args, **kwargs).job.needs
    return found


async def test_the_next_use_writes_a_pool_to_the_store(app: Tidemill) -> None:
    """This includes a pool declared after the application was opened; only new pools are written."""
    gemini = app.pool(
        "gemini",
        MINUTE,
        TOKENS,
        Limit.requests(250, per=Day("America/Los_Angeles")),
        Limit.usd(5, per=Week("Asia/Shanghai")),
        Limit.characters(10_000, per=Month()),
        Limit.concurrent(4),
        reserved_share=0.2,
        urgent=2,
        jitter=1,
        resumes=TimeOfDay(16, 30, "Asia/Shanghai"),
    )
    store = await app.client.store()
    assert {view.name: view.declared for view in await store.pools()} == {"gemini": gemini.settings}
    site = app.pool("site", Limit.requests(1, per="second"), keyed=True)
    store = await app.client.store()
    assert {view.name: view.declared for view in await store.pools()} == {
        "gemini": gemini.settings,
        "site": site.settings,
    }


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda app: app.pool("p"), "limits: name at least one"),
        (lambda app: app.pool("p", MINUTE, MINUTE), "requests per minute is given twice"),
        (lambda app: app.pool("p", 10), "limits: must be such as Limit.requests"),
        (lambda app: app.pool("", MINUTE), "pool: must have 1 to 200 characters"),
        (lambda app: app.pool("a\x1fb", MINUTE), "pool: must not hold"),
        (lambda app: app.pool(7, MINUTE), "pool: the name must be a string"),
        (lambda app: app.pool("p", MINUTE, reserved_share=1), "reserved_share: must be a share"),
        (lambda app: app.pool("p", MINUTE, reserved_share="a"), "reserved_share: must be a share"),
        (lambda app: app.pool("p", MINUTE, urgent=True), "urgent: must be a priority"),
        (lambda app: app.pool("p", MINUTE, jitter=-1), "jitter: must be 0.02 or more seconds"),
        (lambda app: app.pool("p", MINUTE, jitter=0), "jitter: must be 0.02 or more seconds, is 0"),
        (lambda app: app.pool("p", MINUTE, keyed="host"), "keyed: must be True or False"),
        (lambda app: app.pool("p", MINUTE, resumes="16:30"), "resumes: must be a TimeOfDay"),
        (lambda app: app.pool("p", MINUTE, resumes=TimeOfDay(25)), "resumes: time of day"),
        (lambda app: app.pool("p", MINUTE, resumes=TimeOfDay("8")), "resumes: time of day"),  # type: ignore[arg-type]
        (lambda app: app.pool("p", MINUTE, probe_every=0), "probe_every: must be above 0"),
        (lambda app: app.pool("p", MINUTE, per="minute"), "unknown option 'per'"),
        (lambda app: (app.pool("p", MINUTE), app.pool("p", MINUTE)), "pool 'p' is declared twice"),
        (lambda app: app.pool("p", MINUTE).by(lambda host: host), "by: the pool is not keyed"),
        (lambda app: app.pool("p", MINUTE, keyed=True).by("host"), "by: must be a function"),
    ],
)
def test_x5_a_wrong_pool_is_refused_where_it_is_written(code: Tidemill, make: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make(code)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Limit.requests(0, per="minute"), "amount: must be a number above 0"),
        (lambda: Limit.tokens(-1, per="minute"), "amount: must be a number above 0"),
        (lambda: Limit.requests(1, per="fortnight"), "'fortnight' is not a window"),  # type: ignore[arg-type]
        (lambda: Limit.requests(1, per="day"), "say in which zone"),  # type: ignore[arg-type]
        (lambda: Limit.requests(1, per=Day("Mars/Olympus")), "zone: 'Mars/Olympus'"),
        (lambda: Limit.requests(1, per=Day(8)), "zone: 8 is not in the time zone database"),  # type: ignore[arg-type]
        (lambda: Limit.requests("10", per="minute"), "amount: must be a number above 0, is '10'"),  # type: ignore[arg-type]
        (lambda: Limit.requests(1, per=Day), r"per=Day\('America/Los_Angeles'\)"),  # type: ignore[arg-type]
        (lambda: Limit.requests(1, per=None), "per: must be a name, seconds or a calendar"),  # type: ignore[arg-type]
        (lambda: Limit.of("Token Count", 1, per="minute"), "unit: must be a word"),
        (lambda: Limit.of(5, 1, per="minute"), "unit: must be a word"),  # type: ignore[arg-type]
        (lambda: Limit.requests(1, per="minute", shape="square"), "shape: must be one of"),  # type: ignore[arg-type]
    ],
)
def test_x5_a_wrong_limit_is_refused_where_it_is_written(make: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make()


def test_x5_a_tasks_wrong_pools_are_refused_where_they_are_written(code: Tidemill) -> None:
    gemini = code.pool("gemini", MINUTE, TOKENS)
    site = code.pool("site", MINUTE, keyed=True)
    strange = Tidemill("memory://").pool("gemini", MINUTE)

    def handler(songs: list[str]) -> None: ...

    def refused(words: str, **options: Any) -> None:
        with pytest.raises(ConfigurationError, match=words):
            code.task(**options)(handler)

    refused("'gemini': cost: says nothing of tokens", pool=gemini)
    refused("'gemini': cost: 2000 tokens is more than the pool ever", pool=gemini, cost={"tokens": 2000})
    refused("cost: tokens must be a number", pool=gemini, cost={"tokens": "many"})
    refused("cost: must be amounts by unit", pool=gemini, cost=900)
    refused("cost: the task has no pool", cost={"tokens": 900})
    refused("cost: 'voyage' is not a pool of the task", pool=gemini, cost={"voyage": {"tokens": 1}})
    refused(
        "cost: the function is called with the task's parameters", pool=gemini, cost=lambda: {"tokens": 1}
    )
    refused("pool: 'site' is keyed", pool=site)
    refused("pool: 'site' is given twice", pool=[site.by(str), site.by(str)])
    refused("'site': by: the function is called", pool=site.by(lambda host: host))
    refused("pool: must be what app.pool", pool="gemini")
    refused("'gemini' is a pool of another application", pool=strange)
    assert not code.tasks


def test_a_job_needs_the_units_of_its_cost(code: Tidemill) -> None:
    gemini = code.pool("gemini", MINUTE, TOKENS)
    site = code.pool("site", MINUTE, keyed=True)

    @code.task(
        pool=[gemini, site.by(lambda songs, host: host)],
        cost=lambda songs, host: {"tokens": 100 * len(songs)},
    )
    def describe(songs: list[str], host: str = "example.org") -> None: ...

    @code.task(pool=[gemini, site.by(lambda host: host)], cost={gemini: {"tokens": 7}, site: {"requests": 2}})
    def fetch(host: str) -> None: ...

    tokens = {"tokens": 300.0}
    assert needs(describe, ["a", "b", "c"]) == (
        Need("gemini", None, tokens),
        Need("site", "example.org", tokens),
    )
    assert needs(fetch, "b.org") == (
        Need("gemini", None, {"tokens": 7.0}),
        Need("site", "b.org", {"requests": 2.0}),
    )
    assert needs(fetch.using(cost={"tokens": 5}), host="b.org")[0].units == {"tokens": 5.0}


def test_a_job_no_pool_could_let_through_is_refused_before_the_store(code: Tidemill) -> None:
    gemini = code.pool("gemini", MINUTE, TOKENS)
    site = code.pool("site", MINUTE, keyed=True)

    @code.task(pool=gemini, cost=lambda songs: {"tokens": 900 * len(songs)} if songs else {})
    def describe(songs: list[str]) -> None: ...

    @code.task(pool=site.by(lambda host: host))
    def fetch(host: Any) -> None: ...

    @code.task
    def plain() -> None: ...

    def refused(words: str, task: Any, *args: Any) -> None:
        with pytest.raises(InvalidJob, match=words):
            task.enqueue_sync(*args)

    refused("describe.*pool 'gemini': cost: 1800 tokens is more than", describe, ["a", "b"])
    refused("pool 'gemini': cost: says nothing of tokens", describe, [])
    refused("cost: no pool counts 'tokns'; the pool counts", describe.using(cost={"tokns": 1}), ["a"])
    refused("pool 'gemini': cost: tokens must be 0 or more", describe.using(cost={"tokens": -1}), ["a"])
    refused("pool 'site': by: .* must return str, returned int", fetch, 7)
    refused("pool 'site': by: must have 1 to 200 characters", fetch, "")
    refused("pool 'site': by: must not hold", fetch, "a\x1fb")
    refused("cost: the task has no pool", plain.using(cost={"tokens": 1}))
    with pytest.raises(InvalidJob, match="cost: must be amounts by unit"):
        describe.using(cost=5)  # type: ignore[arg-type]


async def test_needs_are_stored_with_the_job(app: Tidemill) -> None:
    gemini = app.pool("gemini", MINUTE, TOKENS)

    @app.task(pool=gemini, cost={"tokens": 900})
    async def describe() -> None: ...

    handle = await describe.enqueue()
    [job] = await app.store.get([handle.id])
    assert job is not None
    assert job.needs == (Need("gemini", None, {"tokens": 900.0}),)


def test_a_pool_shows_its_limits(code: Tidemill) -> None:
    pool = code.pool("gemini", MINUTE, Limit.concurrent(2))
    assert isinstance(pool, Pool)
    assert repr(pool) == "<Pool gemini: 10 requests per minute, 2 calls at once>"
