"""What the store said it did to pools, as events."""

from __future__ import annotations

from collections.abc import Iterable

from tidemill.core.pool_news import Happened, PoolNews
from tidemill.telemetry.events import PoolClosed, PoolOpened, PoolProbed, PoolSlowed
from tidemill.worker.emitter import Emitter

LONGEST_TEXT = 200


def tell(emitter: Emitter, news: Iterable[PoolNews]) -> None:
    """The store tells each of them once; when its answer is lost, so are they."""
    for one in news:
        _tell(emitter, one)


def _tell(emitter: Emitter, one: PoolNews) -> None:
    whom = {"pool": one.pool, "key": one.key, "job": one.job}
    closure = one.closure
    if one.what is Happened.SLOWED:
        emitter.worker_event(PoolSlowed, **whom, amounts=one.amounts)
    elif closure is None:
        return
    elif one.what is Happened.CLOSED:
        emitter.worker_event(
            PoolClosed,
            **whom,
            reason=str(closure.reason),
            unit=closure.unit,
            until=closure.until,
            times=closure.times,
            text=closure.text[:LONGEST_TEXT],
        )
    elif one.what is Happened.PROBED:
        emitter.worker_event(PoolProbed, **whom, reason=str(closure.reason))
    else:
        emitter.worker_event(
            PoolOpened, **whom, reason=str(closure.reason), since=closure.since, ramp=one.ramp
        )
