"""How the pipeline stands, from what is in the store: nothing of it is kept in a variable, so a restart of
everything changes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from tidemill import Overview, PoolStatus, QueueView, State
from tidemill_apps.common.shut import Shut, by_breaker, by_hand
from tidemill_apps.music.limits import CALLS, PIPELINE_QUEUE, WORK_QUEUES

PENDING = (State.SCHEDULED, State.READY, State.WAITING)
LIVE = (*PENDING, State.RUNNING)


class Stage(StrEnum):
    """In which the pipeline is. A person's pause and the breaker are two marks: each is lifted by its own."""

    IDLE = "idle"
    SYNCING = "syncing"
    ENQUEUING = "enqueuing"
    RUNNING = "running"
    PAUSED = "paused"
    BREAKER = "breaker"


class Standing(Struct, frozen=True, kw_only=True):
    """`beginning` is which part of the pipeline's own jobs there is, IDLE when there is none. `again`: songs
    that answers left out are to be sent once more. `paused_queues`: also those that have nothing to do, which
    stop nothing as long as they have not."""

    stage: Stage
    beginning: Stage
    counts: dict[State, int]
    paused: Shut | None
    breaker: Shut | None
    served: bool
    again: bool = False
    paused_queues: tuple[str, ...] = ()

    @property
    def live(self) -> int:
        return sum(self.counts[state] for state in LIVE)

    @property
    def held(self) -> Shut | None:
        """What keeps it from going on."""
        return self.paused or self.breaker


def standing(seen: Overview, beginning: Stage, *, again: bool = False) -> Standing:
    work = [view for view in seen.queues if view.name in WORK_QUEUES]
    counts = {state: sum(view.counts[state] for view in work) for state in State}
    calls = next((pool for pool in seen.pools if pool.name == CALLS), None)
    live = any(counts[state] for state in LIVE)
    paused = _paused(work) or (None if calls is None else by_hand(calls, seen.now))
    breaker = None
    if calls is not None and live:
        breaker = by_breaker(calls, seen.now) or _day_used(calls, seen.now)
    return Standing(
        stage=_stage(beginning, paused=paused, breaker=breaker, live=live or again),
        beginning=beginning,
        counts=counts,
        paused=paused,
        breaker=breaker,
        served=any({*WORK_QUEUES, PIPELINE_QUEUE} & set(worker.queues) for worker in seen.workers),
        again=again,
        paused_queues=tuple(queue for queue in WORK_QUEUES if queue in _with_pause(work)),
    )


def _stage(beginning: Stage, *, paused: Shut | None, breaker: Shut | None, live: bool) -> Stage:
    if beginning is Stage.SYNCING:
        return Stage.SYNCING
    if paused is not None:
        return Stage.PAUSED
    if beginning is Stage.ENQUEUING:
        return Stage.ENQUEUING
    if not live:
        return Stage.IDLE
    return Stage.RUNNING if breaker is None else Stage.BREAKER


def _with_pause(work: Iterable[QueueView]) -> set[str]:
    return {view.name for view in work if view.pause is not None}


def _paused(work: Iterable[QueueView]) -> Shut | None:
    """When all are, or all that have something to do: one quiet queue that somebody paused stops nothing."""
    views = list(work)
    busy = [view for view in views if view.size] or views
    pauses = [view.pause for view in busy]
    if not pauses or any(pause is None for pause in pauses):
        return None
    first = pauses[0]
    return None if first is None else Shut(first.reason or "paused by hand", first.until)


def _day_used(calls: PoolStatus, now: float) -> Shut | None:
    """Nobody was refused, and nothing is left of the day all the same."""
    if calls.reservations:
        return None
    for limit in calls.limits:
        most = limit.amount if limit.learned is None else min(limit.amount, limit.learned.amount)
        if limit.name == "requests per day" and limit.used >= most:
            until = None if limit.free_in is None else now + limit.free_in
            return Shut(f"all {most:g} calls of the day are used", until)
    return None
