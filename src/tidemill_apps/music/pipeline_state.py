"""The state of the pipeline, derived from the job store. Also stores when the current run began."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from tidemill import Overview, PoolStatus, QueueView, State
from tidemill_apps.common.status import LIVE_STATES, ProviderCallBlock, breaker_block, operator_block
from tidemill_apps.music.library import Library
from tidemill_apps.music.limits import CALLS_POOL, PIPELINE_QUEUE, WORK_QUEUES


class PipelineStage(StrEnum):
    """The current activity of the pipeline. PAUSED is a pause by an operator. BREAKER means that the provider
    refuses calls or the day's quota is used up."""

    IDLE = "idle"
    SYNCING = "syncing"
    ENQUEUING = "enqueuing"
    RUNNING = "running"
    PAUSED = "paused"
    BREAKER = "breaker"


class PipelineState(Struct, frozen=True, kw_only=True):
    """The state of the pipeline.

    - `start_stage`: SYNCING or ENQUEUING while a start job is active, otherwise IDLE.
    - `counts`: the number of jobs in the work queues by job state.
    - `paused`: why an operator has paused the work; None without a pause.
    - `breaker`: why the breaker stops the work; None if it does not.
    - `retries_left_out`: True if a waiting job will retry songs that the model left out.
    - `paused_queues`: the paused work queues, including queues without jobs.
    """

    stage: PipelineStage
    start_stage: PipelineStage
    counts: dict[State, int]
    paused: ProviderCallBlock | None
    breaker: ProviderCallBlock | None
    has_worker: bool
    retries_left_out: bool = False
    paused_queues: tuple[str, ...] = ()

    @property
    def live(self) -> int:
        return sum(self.counts[state] for state in LIVE_STATES)

    @property
    def block(self) -> ProviderCallBlock | None:
        """Returns why the pipeline does not continue, or None."""
        return self.paused or self.breaker


def derive_pipeline_state(
    seen: Overview, start_stage: PipelineStage, *, retries_left_out: bool = False
) -> PipelineState:
    work = [view for view in seen.queues if view.name in WORK_QUEUES]
    counts = {state: sum(view.counts[state] for view in work) for state in State}
    calls = next((pool for pool in seen.pools if pool.name == CALLS_POOL), None)
    live = any(counts[state] for state in LIVE_STATES)
    paused = _pause_block(work) or (None if calls is None else operator_block(calls, seen.now))
    breaker = None
    if calls is not None and live:
        breaker = breaker_block(calls, seen.now) or _day_quota_block(calls, seen.now)
    return PipelineState(
        stage=_derive_stage(start_stage, paused=paused, breaker=breaker, live=live or retries_left_out),
        start_stage=start_stage,
        counts=counts,
        paused=paused,
        breaker=breaker,
        has_worker=any({*WORK_QUEUES, PIPELINE_QUEUE} & set(worker.queues) for worker in seen.workers),
        retries_left_out=retries_left_out,
        paused_queues=tuple(queue for queue in WORK_QUEUES if queue in _find_paused_queues(work)),
    )


def _derive_stage(
    start_stage: PipelineStage,
    *,
    paused: ProviderCallBlock | None,
    breaker: ProviderCallBlock | None,
    live: bool,
) -> PipelineStage:
    if start_stage is PipelineStage.SYNCING:
        return PipelineStage.SYNCING
    if paused is not None:
        return PipelineStage.PAUSED
    if start_stage is PipelineStage.ENQUEUING:
        return PipelineStage.ENQUEUING
    if not live:
        return PipelineStage.IDLE
    return PipelineStage.RUNNING if breaker is None else PipelineStage.BREAKER


def _find_paused_queues(work: Iterable[QueueView]) -> set[str]:
    return {view.name for view in work if view.pause is not None}


def _pause_block(work: Iterable[QueueView]) -> ProviderCallBlock | None:
    """Returns the pause of the work queues, or None. Work counts as paused if every queue that has jobs is
    paused. If no queue has jobs, every queue must be paused."""
    views = list(work)
    busy = [view for view in views if view.size] or views
    pauses = [view.pause for view in busy]
    if not pauses or any(pause is None for pause in pauses):
        return None
    first = pauses[0]
    return None if first is None else ProviderCallBlock(first.reason or "paused by hand", first.until)


def _day_quota_block(calls: PoolStatus, now: float) -> ProviderCallBlock | None:
    """Returns a block if all calls of the day are used, even if the provider has not refused a call;
    otherwise None. While a call is still reserved, it returns None."""
    if calls.reservations:
        return None
    for limit in calls.limits:
        most = limit.amount if limit.learned is None else min(limit.amount, limit.learned.amount)
        if limit.name == "requests per day" and limit.used >= most:
            until = None if limit.free_in is None else now + limit.free_in
            return ProviderCallBlock(f"all {most:g} calls of the day are used", until)
    return None


RUN_START_KEY = "run_started_at"


async def begin_run(library: Library, *, under_way: bool) -> None:
    """Stores the current time as the start of a run. With `under_way=True` it stores nothing, because the new
    work belongs to the run of an earlier start."""
    if not (under_way and await load_run_start(library)):
        await library.flags.put(RUN_START_KEY, str(library.now_milliseconds()))


async def end_run(library: Library) -> None:
    await library.flags.delete(RUN_START_KEY)


async def load_run_start(library: Library) -> int | None:
    """Returns the start time of the run in milliseconds. Returns None after a stop or before the first
    run."""
    told = await library.flags.get(RUN_START_KEY)
    return None if told is None else int(told)
