"""The doctor's findings about jobs, the services they need, arrivals, flows and schedules."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

from tidemill.app import Tidemill
from tidemill.cli.doctor_queues import Finding, start_worker_hint
from tidemill.cli.store_options import CommandTarget
from tidemill.core.documents import Document, DocumentKind, WorkItem
from tidemill.core.filters import Filter
from tidemill.core.flow_graph import decode_graph
from tidemill.core.flow_progress import next_jobs
from tidemill.core.queues import DAY_SECONDS
from tidemill.core.states import State
from tidemill.core.transitions import POISON
from tidemill.inspect.formatting import format_duration, pluralize
from tidemill.inspect.views import Overview
from tidemill.schedules.schedule import ScheduleOrigin, ScheduleState, try_decode_schedule

MAX_JOBS_READ = 1000
UNKNOWN_TASK_TEXT = "does not know this task"


async def check_dependencies(app: Tidemill, overview: Overview) -> list[Finding]:
    """Returns a finding of level "bad" for each service that handlers cannot use now."""
    return [
        Finding(
            subject=f"dependency {found.name}",
            level="bad",
            message=f"jobs have been waiting for it for {format_duration(overview.now - found.since)}: "
            f"{found.problem}",
            remedy="see that it runs and can be reached; the jobs go on by themselves",
        )
        for found in await app.inspect.dependencies()
        if found.is_away
    ]


async def check_jobs(app: Tidemill, overview: Overview, target: CommandTarget) -> list[Finding]:
    return [finding async for finding in _check_each(app, overview, target)]


async def _check_each(app: Tidemill, overview: Overview, target: CommandTarget) -> AsyncIterator[Finding]:
    yield await _check_leases(app, overview, target)
    for finding in (await _check_unknown_tasks(app), await _check_poison(app, overview, target)):
        if finding is not None:
            yield finding


async def _check_leases(app: Tidemill, overview: Overview, target: CommandTarget) -> Finding:
    """Returns a finding about the leases of running jobs. The level is "bad" if a lease has expired and no
    worker has reclaimed the job, else "ok"."""
    now = (await app.store.read_clock()).boot
    running = [job async for job in app.inspect.each(Filter(states=(State.RUNNING,)))]
    over = [job for job in running if job.lease <= now]
    if not over:
        return Finding(
            subject="leases", level="ok", message=f"{pluralize(len(running), 'running job')}, all in time"
        )
    longest = max(now - job.lease for job in over)
    are = "job is" if len(over) == 1 else "jobs are"
    return Finding(
        subject="leases",
        level="bad",
        message=f"{len(over)} running {are} past the lease, up to {format_duration(longest)}, such as "
        f"{over[0].id}: the worker that ran it is gone",
        remedy="wait: a worker takes them back within seconds"
        if overview.workers
        else f"{start_worker_hint(target)}; it takes them back",
    )


async def _check_unknown_tasks(app: Tidemill) -> Finding | None:
    filter_ = Filter(states=(State.SCHEDULED,), text=UNKNOWN_TASK_TEXT)
    page = await app.inspect.find(filter_, limit=MAX_JOBS_READ, scan_limit=None)
    found = [job for job in page.jobs if job.unknown_for > 0]
    if not found:
        return None
    tasks = ", ".join(sorted({job.task for job in found})[:5])
    return Finding(
        subject="tasks",
        level="bad",
        message=f"{pluralize(len(found), 'job')} of tasks that workers do not know: {tasks}",
        remedy="start a worker with the code that has them, or correct the name; after 24 hours a job fails",
    )


async def _check_poison(app: Tidemill, overview: Overview, target: CommandTarget) -> Finding | None:
    """Returns a finding about poison jobs, or None if there are none. The level is "bad" if a job became
    poison in the last 24 hours, else "note"."""
    filter_ = Filter(states=(State.FAILED,), text=POISON)
    found = [
        job
        for job in (await app.inspect.find(filter_, limit=MAX_JOBS_READ, scan_limit=None)).jobs
        if job.reason == POISON
    ]
    if not found:
        return None
    fresh = any(overview.now - (job.finished or 0.0) < DAY_SECONDS for job in found)
    return Finding(
        subject="poison",
        level="bad" if fresh else "note",
        message=f"{pluralize(len(found), 'job')} ended the process that ran "
        f"{'it' if len(found) == 1 else 'them'} each time, such as {found[0].id} ({found[0].task})",
        remedy=f"see: {target.command('jobs', 'show', found[0].id)}; common causes are too little "
        "memory and crashes in C code",
    )


MAX_ARRIVALS_READ = 1000
ADMIT_SECONDS = 10.0
"""A running worker that knows the task admits an arrival well within this time."""


async def check_arrivals(app: Tidemill, overview: Overview, target: CommandTarget) -> list[Finding]:
    """Returns a finding if arrivals wait that no worker has admitted; else an empty list. Arrivals are not
    jobs yet, so no list of jobs shows them."""
    since = overview.now - (ADMIT_SECONDS if overview.workers else 0.0)
    found = [arrival for arrival in await app.store.arrivals(MAX_ARRIVALS_READ) if arrival.arrived <= since]
    if not found:
        return []
    count = f"{'at least ' if len(found) == MAX_ARRIVALS_READ else ''}{pluralize(len(found), 'request')}"
    wait = "waits" if len(found) == 1 else "wait"
    taken = " that no running worker has taken" if overview.workers else ""
    oldest = format_duration(overview.now - min(arrival.arrived for arrival in found))
    tasks = ", ".join(sorted({arrival.task for arrival in found})[:5])
    unknown_task_hint = (
        "start a worker with the code that has them, or correct the name; after 24 hours a request fails"
    )
    return [
        Finding(
            subject="arrivals",
            level="note",
            message=f"{count} from outside {wait}{taken}, the oldest for {oldest}: {tasks}",
            remedy=unknown_task_hint if overview.workers else start_worker_hint(target),
        )
    ]


MAX_FLOWS_READ = 1000
MAX_FLOWS_NAMED = 5
ADVANCE_SECONDS = 15.0
"""A running worker advances a flow well within this time, even if the leader died meanwhile."""


async def check_flows(app: Tidemill, overview: Overview, target: CommandTarget) -> list[Finding]:
    work_items = (await app.store.worklist(DocumentKind.FLOW, MAX_FLOWS_READ)).work_items
    waited = await _flow_waits(app, work_items, overview.now)
    min_wait = ADVANCE_SECONDS if overview.workers else 0.0
    left = [item for item in work_items if waited[item.document.id] >= min_wait]
    return [_stalled_finding(left, max(waited.values()), overview, target)] if left else []


async def _flow_waits(app: Tidemill, work_items: Sequence[WorkItem], now: float) -> dict[str, float]:
    """Returns a dict from flow id to the seconds that the flow has waited to be advanced, 0 if this is
    unknown."""
    jobs = await app.store.get([item.changes[0].job for item in work_items if item.changes])
    ended = {job.id: job.finished for job in jobs if job is not None}
    since = {item.document.id: _waiting_since(item, ended) for item in work_items}
    return {flow: 0.0 if at is None else max(0.0, now - at) for flow, at in since.items()}


def _waiting_since(work_items: WorkItem, ended: dict[str, float | None]) -> float | None:
    stuck = decode_graph(work_items.document.record).stuck
    if stuck is not None:
        return stuck
    return ended.get(work_items.changes[0].job) if work_items.changes else work_items.document.due


def _stalled_finding(
    left: Sequence[WorkItem], longest: float, overview: Overview, target: CommandTarget
) -> Finding:
    at_least = "at least " if len(left) == MAX_FLOWS_READ else ""
    count = at_least + pluralize(len(left), "flow waits", "flows wait")
    named = ", ".join(item.document.id for item in left[:MAX_FLOWS_NAMED])
    more = f" and {len(left) - MAX_FLOWS_NAMED} more" if len(left) > MAX_FLOWS_NAMED else ""
    tasks = sorted({*_unknown_flow_tasks(left)})[:MAX_FLOWS_NAMED]
    unknown_task_hint = (
        f"start a worker with the code that has {', '.join(tasks)}; after 24 hours such a step fails"
    )
    stuck_hint = "workers are stuck or cannot write: look at their logs, and start them again"
    return Finding(
        subject="flows",
        level="bad",
        message=f"{count} to be advanced, for up to {format_duration(longest)}: {named}{more}",
        remedy=start_worker_hint(target)
        if not overview.workers
        else unknown_task_hint
        if tasks
        else stuck_hint,
    )


def _unknown_flow_tasks(left: Sequence[WorkItem]) -> Iterator[str]:
    """Yields the tasks of steps that cannot start, because no worker knows these tasks. `left` has the flows
    that wait to be advanced."""
    for item in left:
        graph = decode_graph(item.document.record)
        if graph.stuck is not None:
            yield from (job.work.task for job in next_jobs(graph, 1))


MAX_SCHEDULES_READ = 1000
MAX_SCHEDULES_NAMED = 5
FIRE_SECONDS = 15.0
"""A running worker that knows the task fires a schedule well within this time, even if the leader died
meanwhile."""


async def check_schedules(app: Tidemill, overview: Overview, target: CommandTarget) -> list[Finding]:
    worklist = await app.store.worklist(DocumentKind.SCHEDULE, MAX_SCHEDULES_READ)
    disabled = await app.store.find_documents(
        DocumentKind.SCHEDULE,
        name=ScheduleOrigin.DECLARED,
        states=[ScheduleState.DISABLED],
        limit=MAX_SCHEDULES_READ,
    )
    due = [item.document for item in worklist.work_items]
    return [*_check_overdue(due, overview, target), *_check_disabled(disabled.documents, target)]


def _check_overdue(documents: list[Document], overview: Overview, target: CommandTarget) -> Iterator[Finding]:
    late = {document.id: overview.now - (document.due or overview.now) for document in documents}
    over = [document for document in documents if late[document.id] > FIRE_SECONDS]
    if not over:
        return
    tasks = sorted(
        {schedule.work.task for document in over if (schedule := try_decode_schedule(document)) is not None}
    )[:MAX_SCHEDULES_NAMED]
    at_least = "at least " if len(over) == MAX_SCHEDULES_READ else ""
    count = at_least + pluralize(len(over), "schedule is", "schedules are")
    longest = format_duration(max(late.values()))
    unknown_task_hint = (
        f"start a worker with the code that has {', '.join(tasks) or 'their tasks'}, or remove them"
    )
    yield Finding(
        subject="schedules",
        level="bad",
        message=f"{count} due and not fired, for up to {longest}: {_schedule_names(over)}",
        remedy=unknown_task_hint if overview.workers else start_worker_hint(target),
    )


def _check_disabled(documents: tuple[Document, ...], target: CommandTarget) -> Iterator[Finding]:
    if documents:
        yield Finding(
            subject="schedules",
            level="note",
            message=f"{pluralize(len(documents), 'schedule is', 'schedules are')} "
            f"disabled, gone from the code: {_schedule_names(documents)}",
            remedy=f"to forget one: {target.command('schedules', 'remove', documents[0].id)}",
        )


def _schedule_names(documents: tuple[Document, ...] | list[Document]) -> str:
    named = ", ".join(document.id for document in documents[:MAX_SCHEDULES_NAMED])
    return (
        f"{named} and {len(documents) - MAX_SCHEDULES_NAMED} more"
        if len(documents) > MAX_SCHEDULES_NAMED
        else named
    )
