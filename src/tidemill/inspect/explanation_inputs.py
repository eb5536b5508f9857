"""Loads everything that an explanation needs from the store."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidemill.contract.jobs import ClockReading
from tidemill.contract.queues import QueueInfo
from tidemill.contract.reader import DEFAULT_SCAN_LIMIT, AttemptRecord, WorkerInfo
from tidemill.contract.store import Store
from tidemill.core.batching import seconds_until_full
from tidemill.core.documents import DocumentKind
from tidemill.core.filters import Filter
from tidemill.core.jobs import Job
from tidemill.core.queues import QueueSettings
from tidemill.core.result_waits import WaitTarget, parse_wait_note
from tidemill.core.states import PENDING, State
from tidemill.inspect.forecast_inputs import StoreSnapshot, load_snapshot, mean_job_seconds
from tidemill.inspect.jobs import require_job
from tidemill.tasks.definition import TaskDefinition

MAX_READS = 5


class AwaitedResult(msgspec.Struct, frozen=True):
    """A job or flow whose result a running job waits for. `queue` is None for a flow. `state` is None if the
    job or flow was deleted."""

    kind: str
    id: str
    queue: str | None = None
    state: str | None = None


class ExplanationInputs(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about one job, from which its explanation is made. A pending job is scheduled, ready, or
    waits for its unique key.

    - `running`, `ready`: how many jobs of the queue are in these states
    - `running_in_lane`: how many running jobs have the same key; 0 if the queue has no limit per key
    - `ahead`: how many jobs of the lane start before this job; None unless the job is ready
    - `workers`: the workers that serve the queue
    - `worker`: the live worker that runs the job
    - `predecessor`: the job with the same unique key that must end first
    - `last_attempt`: the last attempt that did not succeed
    - `task_known`: True if this program has the task
    - `attempts`: the task's maximum number of attempts
    - `timeout`: seconds that an attempt may take
    - `snapshot`: pools and ready jobs of the store; None unless the job is pending
    - `job_seconds`: mean duration of the task's recent jobs; None unless the job is pending
    - `batch_due`: seconds until the call of the job's batch may start
    - `waits_for`: the jobs and flows whose results the running handler waits for"""

    now: ClockReading
    job: Job
    queue: QueueInfo
    running: int = 0
    running_in_lane: int = 0
    ready: int = 0
    ahead: int | None = None
    workers: tuple[WorkerInfo, ...] = ()
    worker: WorkerInfo | None = None
    predecessor: Job | None = None
    last_attempt: AttemptRecord | None = None
    task_known: bool = False
    attempts: int | None = None
    timeout: float | None = None
    snapshot: StoreSnapshot | None = None
    job_seconds: float | None = None
    batch_due: float = 0.0
    waits_for: tuple[AwaitedResult, ...] = ()


async def load_inputs(store: Store, tasks: Mapping[str, TaskDefinition], id: str) -> ExplanationInputs:  # noqa: A002 - the word for it
    """Returns the facts about the job `id`. Raises JobNotFound.

    If the job changes during the queries, they are repeated, up to 5 times."""
    job = await require_job(store, id)
    for _ in range(MAX_READS):
        facts = await _load_once(store, tasks, job)
        reread = await require_job(store, id)
        if _is_unchanged(job, reread):
            return facts
        job = reread
    return facts


def _is_unchanged(before: Job, after: Job) -> bool:
    """True if the job still has the same state, claim, generation and due time. New progress does not count
    as a change."""
    return (before.state, before.fence, before.generation, before.due) == (
        after.state,
        after.fence,
        after.generation,
        after.due,
    )


async def _load_once(store: Store, tasks: Mapping[str, TaskDefinition], job: Job) -> ExplanationInputs:
    task, waits = tasks.get(job.task), job.state in PENDING
    workers = await store.workers()
    counts = (await store.counts()).get(job.queue, {})
    queue = await _find_queue(store, job.queue)
    attempts = await store.attempts(job.id)
    return ExplanationInputs(
        now=await store.read_clock(),
        job=job,
        queue=queue,
        running=counts.get(State.RUNNING, 0),
        running_in_lane=await _count_running_in_lane(store, job, queue),
        ready=counts.get(State.READY, 0),
        ahead=await store.ahead(job.id),
        workers=tuple(worker for worker in workers if job.queue in worker.queues),
        worker=next((worker for worker in workers if worker.id == job.worker), None),
        predecessor=None if job.after is None else (await store.get([job.after]))[0],
        last_attempt=attempts[-1] if attempts else None,
        task_known=task is not None,
        attempts=None if task is None else task.retry.attempts,
        timeout=job.timeout or (None if task is None else task.timeout),
        snapshot=await load_snapshot(store) if waits else None,
        job_seconds=await mean_job_seconds(store, job.queue, job.task) if waits else None,
        batch_due=await _seconds_until_batch(store, job),
        waits_for=await _load_awaited_results(store, job),
    )


async def _load_awaited_results(store: Store, job: Job) -> tuple[AwaitedResult, ...]:
    noted = parse_wait_note(job.note) if job.state is State.RUNNING else None
    return (
        ()
        if noted is None
        else tuple([await _load_awaited_result(store, target) for target in noted.targets])
    )


async def _load_awaited_result(store: Store, target: WaitTarget) -> AwaitedResult:
    if target.kind == "flow":
        [flow] = await store.documents(DocumentKind.FLOW, [target.id])
        return AwaitedResult("flow", target.id, state=None if flow is None else flow.state)
    [job] = await store.get([target.id])
    if job is None:
        return AwaitedResult("job", target.id)
    return AwaitedResult("job", target.id, job.queue, job.state)


async def _find_queue(store: Store, name: str) -> QueueInfo:
    for info in await store.queues():
        if info.name == name:
            return info
    defaults = QueueSettings()  # unreachable: a queue with a job is known
    return QueueInfo(name=name, declared=defaults, override=None, settings=defaults, pause=None)


async def _count_running_in_lane(store: Store, job: Job, queue: QueueInfo) -> int:
    limit = queue.settings.key_concurrency
    if limit is None or not job.key or job.state is State.RUNNING:
        return 0
    job_filter = Filter(queue=job.queue, key=job.key, states=(State.RUNNING,))
    return len((await store.find(job_filter, limit, scan_limit=DEFAULT_SCAN_LIMIT)).jobs)


async def _seconds_until_batch(store: Store, job: Job) -> float:
    """Returns the seconds until the job's batch is called. 0 if the batch can be called now, or if the task
    has no batches."""
    if job.batching is None or job.state is not State.READY:
        return 0.0
    job_filter = Filter(queue=job.queue, task=job.task, states=(State.READY,))
    found = (await store.find(job_filter, job.batching.max_items, scan_limit=DEFAULT_SCAN_LIMIT)).jobs
    lane = [ready for ready in found if ready.lane == job.lane]
    lane.sort(key=lambda ready: (ready.priority, ready.due, ready.seq))
    return seconds_until_full(job.batching, lane, (await store.read_clock()).wall) if lane else 0.0
