"""What an explanation is made from, read together."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidemill.contract.jobs import Reading
from tidemill.contract.queues import QueueInfo
from tidemill.contract.reader import LOOKS, AttemptRecord, WorkerInfo
from tidemill.contract.store import Store
from tidemill.core.batching import ripe_in
from tidemill.core.courses import Kind
from tidemill.core.filters import Filter
from tidemill.core.job import Job
from tidemill.core.queues import QueueSettings
from tidemill.core.states import PENDING, State
from tidemill.core.waits import WaitTarget, waits_in
from tidemill.errors import JobNotFound
from tidemill.inspect.situation import Situation, look, mean_time
from tidemill.tasks.definition import TaskDefinition

TRIES = 5


class AwaitedResult(msgspec.Struct, frozen=True):
    """What a running job waits for. `queue` is None of a flow, `state` of what is gone."""

    kind: str
    id: str
    queue: str | None = None
    state: str | None = None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """`now` is the store's reading of its clocks. `running` and `ready` count the queue's jobs,
    `running_in_lane` those with the job's key (0 when no limit asks for it). `ahead` is None unless the
    job is ready. `workers` are those that serve the queue, `worker` the one that holds the job, None when
    it no longer reports. `known` says whether the looking program has the task; then `attempts` and
    `timeout` are its policy. `last` is the last attempt that did not succeed. `situation` is that of pools
    and of what else needs them, `takes` how long jobs of its task take as far as is known, and `ripe` in how
    many seconds its lane is worth a call; they are looked at only while it waits. `waits_for` are the results
    that the handler of a running job waits for."""

    now: Reading
    job: Job
    queue: QueueInfo
    running: int = 0
    running_in_lane: int = 0
    ready: int = 0
    ahead: int | None = None
    workers: tuple[WorkerInfo, ...] = ()
    worker: WorkerInfo | None = None
    predecessor: Job | None = None
    last: AttemptRecord | None = None
    known: bool = False
    attempts: int | None = None
    timeout: float | None = None
    situation: Situation | None = None
    takes: float | None = None
    ripe: float = 0.0
    waits_for: tuple[AwaitedResult, ...] = ()


async def gather(store: Store, tasks: Mapping[str, TaskDefinition], id: str) -> Facts:  # noqa: A002 - the word for it
    """Facts are read one after the other while jobs go on: when this one moved meanwhile they may
    contradict each other, and are read again."""
    job = await find_job(store, id)
    for _ in range(TRIES):
        facts = await _look(store, tasks, job)
        again = await find_job(store, id)
        if _same_step(job, again):
            return facts
        job = again
    return facts


async def find_job(store: Store, id: str) -> Job:  # noqa: A002 - the word for it
    [job] = await store.get([id])
    if job is None:
        raise JobNotFound(f"there is no job {id!r}: the id is wrong, or it was pruned")
    return job


def _same_step(before: Job, after: Job) -> bool:
    """Progress of a run is not a step."""
    return (before.state, before.fence, before.generation, before.due) == (
        after.state,
        after.fence,
        after.generation,
        after.due,
    )


async def _look(store: Store, tasks: Mapping[str, TaskDefinition], job: Job) -> Facts:
    task, waits = tasks.get(job.task), job.state in PENDING
    workers = await store.workers()
    counts = (await store.counts()).get(job.queue, {})
    queue = await _queue(store, job.queue)
    attempts = await store.attempts(job.id)
    return Facts(
        now=await store.read_clock(),
        job=job,
        queue=queue,
        running=counts.get(State.RUNNING, 0),
        running_in_lane=await _running_in_lane(store, job, queue),
        ready=counts.get(State.READY, 0),
        ahead=await store.ahead(job.id),
        workers=tuple(worker for worker in workers if job.queue in worker.queues),
        worker=next((worker for worker in workers if worker.id == job.worker), None),
        predecessor=None if job.after is None else (await store.get([job.after]))[0],
        last=attempts[-1] if attempts else None,
        known=task is not None,
        attempts=None if task is None else task.retry.attempts,
        timeout=job.timeout or (None if task is None else task.timeout),
        situation=await look(store) if waits else None,
        takes=await mean_time(store, job.queue, job.task) if waits else None,
        ripe=await _ripe(store, job),
        waits_for=await _awaited(store, job),
    )


async def _awaited(store: Store, job: Job) -> tuple[AwaitedResult, ...]:
    noted = waits_in(job.note) if job.state is State.RUNNING else None
    return () if noted is None else tuple([await _result_of(store, target) for target in noted.targets])


async def _result_of(store: Store, target: WaitTarget) -> AwaitedResult:
    if target.kind == "flow":
        [flow] = await store.courses(Kind.FLOW, [target.id])
        return AwaitedResult("flow", target.id, state=None if flow is None else flow.state)
    [job] = await store.get([target.id])
    if job is None:
        return AwaitedResult("job", target.id)
    return AwaitedResult("job", target.id, job.queue, job.state)


async def _queue(store: Store, name: str) -> QueueInfo:
    for info in await store.queues():
        if info.name == name:
            return info
    plain = QueueSettings()  # never: a queue that has a job is known
    return QueueInfo(name=name, declared=plain, override=None, settings=plain, pause=None)


async def _running_in_lane(store: Store, job: Job, queue: QueueInfo) -> int:
    limit = queue.settings.key_concurrency
    if limit is None or not job.key or job.state is State.RUNNING:
        return 0
    wanted = Filter(queue=job.queue, key=job.key, states=(State.RUNNING,))
    return len((await store.find(wanted, limit, looks=LOOKS)).jobs)


async def _ripe(store: Store, job: Job) -> float:
    """In how many seconds its lane is worth a call, 0 when it is or calls are not shared."""
    if job.batching is None or job.state is not State.READY:
        return 0.0
    wanted = Filter(queue=job.queue, task=job.task, states=(State.READY,))
    found = (await store.find(wanted, job.batching.max_items, looks=LOOKS)).jobs
    lane = [each for each in found if each.lane == job.lane]
    lane.sort(key=lambda each: (each.priority, each.due, each.seq))
    return ripe_in(job.batching, lane, (await store.read_clock()).wall) if lane else 0.0
