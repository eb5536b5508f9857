"""Counters of ended jobs that never fall, whatever becomes of their records."""

from __future__ import annotations

import pytest

from tidemill import Filter, GiveUp, QueueTotal, Retry, State, Tidemill
from tidemill.core.queues import DAY
from tidemill.errors import QueueNotFound
from tidemill.tallies import totals
from tidemill.testing import ManualClock


async def work(app: Tidemill) -> None:
    await app.worker(until_idle=True, concurrency=2).run()


async def test_what_is_gone_is_counted(app: Tidemill, clock: ManualClock) -> None:
    @app.task(name="sing", queue="songs", retry=Retry(attempts=1))
    async def sing(song: str) -> None:
        if song == "跑调":
            raise GiveUp("out of tune")

    assert await app.inspect.totals("songs") == {"songs": QueueTotal()}
    await app.enqueue_many(sing.job(song) for song in ("one", "二", "跑调"))
    await work(app)
    await app.inspect.cancel((await sing.using(delay=60).enqueue("never")).id)
    found = QueueTotal(done=2, failed=1, cancelled=1)
    assert (await app.inspect.totals())["songs"] == found
    await app.inspect.delete(Filter(queue="songs", states=tuple(State)))
    clock.advance(2 * DAY)
    await totals.keep(app.store)
    await sing.enqueue("three")
    await work(app)
    assert (await app.inspect.totals("songs"))["songs"] == QueueTotal(done=3, failed=1, cancelled=1)
    clock.advance(9 * DAY)
    await totals.keep(app.store)
    assert (await app.inspect.totals("songs"))["songs"].done == 3


async def test_a_queue_without_an_end_has_zeroes_and_an_unknown_one_is_told(app: Tidemill) -> None:
    await app.client.store(declare=True)
    assert await app.inspect.totals("feeds") == {"feeds": QueueTotal()}
    with pytest.raises(QueueNotFound, match="feedz"):
        await app.inspect.totals("feeds", "feedz")
