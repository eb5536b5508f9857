"""A plan of many keys costs their number, not its square: a server that answers it has others to answer."""

from __future__ import annotations

import pytest

from tidemill import Limit, Tidemill
from tidemill.inspect.backlog import Knows
from tidemill.inspect.situation import Situation


async def test_twice_the_keys_are_asked_about_twice_as_often(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    known = Situation.known

    def counting(situation: Situation) -> Knows:
        knows = known(situation)

        def counted(place: tuple[str, str | None]) -> object:
            nonlocal asked
            asked += 1
            return knows(place)

        return counted  # type: ignore[return-value]

    monkeypatch.setattr(Situation, "known", counting)
    app = Tidemill("memory://")
    site = app.pool("site", Limit.requests(1, per="second"), keyed=True)

    @app.task(queue="feeds", pool=site.by(lambda feed: feed))
    async def refresh(feed: str) -> None: ...

    costs = []
    async with app:
        for keys in (50, 100):
            asked = 0
            plan = await app.plan([refresh.job(f"{number}.example") for number in range(keys)])
            assert len(plan.limits) == keys
            costs.append(asked)
    assert costs[1] < 2.5 * costs[0]
