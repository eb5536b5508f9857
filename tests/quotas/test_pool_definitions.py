"""Invalid definitions are refused where they are written, with the name of the field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidemill import Day, Limit, Tidemill
from tidemill.errors import ConfigurationError, InvalidJob


@pytest.mark.parametrize(
    ("write", "field", "says"),
    [
        (lambda: Limit.requests(0, per="minute"), "amount", "above 0"),
        (lambda: Limit.tokens(-5, per="minute"), "amount", "above 0"),
        (lambda: Limit.tokens(float("nan"), per="minute"), "amount", "above 0"),
        (lambda: Limit.concurrent(0), "amount", "above 0"),
        (lambda: Limit.of("Tokens!", 5, per="minute"), "unit", "a word of small letters"),
        (lambda: Limit.requests(5, per="fortnight"), "per", "is not a window"),  # type: ignore[arg-type]
        (lambda: Limit.requests(5, per="day"), "per", "say in which zone it begins"),  # type: ignore[arg-type]
        (lambda: Limit.requests(5, per=0), "per", "above 0 seconds"),
        (lambda: Limit.requests(5, per=-60), "per", "above 0 seconds"),
        (lambda: Limit.requests(5, per=Day("America/Los_Angelos")), "zone", "time zone database"),
        (lambda: Limit.requests(5, per="minute", shape="sliding"), "shape", "must be one of"),  # type: ignore[arg-type]
        (lambda: Limit.requests(5, per="minute", charge="later"), "charge", "must be one of"),  # type: ignore[arg-type]
    ],
)
def test_a_limit_that_cannot_hold(write: Callable[[], Any], field: str, says: str) -> None:
    """ "Bad definitions (zero or negative amounts, unknown unit or zone, …) refused where they are written,
    naming the field." """
    with pytest.raises(ConfigurationError) as refused:
        write()
    assert str(refused.value).startswith(f"{field}: ")
    assert says in str(refused.value)


async def test_a_call_of_a_unit_its_pool_does_not_know_of() -> None:
    """The error names the misspelt unit and the units that the pool counts."""
    app = Tidemill("memory://")
    pool = app.pool("api", Limit.tokens(1_000, per="minute"))
    with pytest.raises(ConfigurationError, match="cost: no pool counts 'tokns'; the pool counts tokens"):

        @app.task(pool=pool, cost={"tokns": 5})
        async def ask() -> None: ...


@pytest.mark.parametrize("shape", ["rolling", "bucket", "paced"])
async def test_a_job_larger_than_its_limit(shape: Any) -> None:
    """ "A job larger than its limit"; a job as large as the limit waits until all of it is free."""
    app = Tidemill("memory://")
    pool = app.pool("api", Limit.tokens(1_000, per="minute", shape=shape))

    @app.task(pool=pool, cost=lambda size: {"tokens": size})
    async def ask(size: int) -> None: ...

    async with app:
        with pytest.raises(InvalidJob, match=r"pool 'api': cost: 1001 tokens is more than .* smaller pieces"):
            await ask.enqueue(1_001)
        await ask.enqueue(1_000)


async def test_a_pool_is_given_only_what_it_takes() -> None:
    app = Tidemill("memory://")
    with pytest.raises(ConfigurationError, match=r"pool 'api': limits: name at least one"):
        app.pool("api")
    with pytest.raises(ConfigurationError, match=r"pool 'api': limits: requests per minute is given twice"):
        app.pool("api", Limit.requests(1, per="minute"), Limit.requests(2, per=60))
    with pytest.raises(ConfigurationError, match=r"pool 'api': reserved_share"):
        app.pool("api", Limit.requests(1, per="minute"), reserved_share=1.5)
