"""Store methods for queue settings, overrides and pauses, and for operators' changes to jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from tidemill.contract.coordination import queue_topic, worker_topic
from tidemill.contract.queues import QueueInfo, make_queue_info
from tidemill.core.filters import Filter, check_filter, matches_filter
from tidemill.core.jobs import Job
from tidemill.core.operator_changes import AmendResult, OperatorChange, RetryJobs, applies_to, apply_change
from tidemill.core.overrides import OverrideEdit
from tidemill.core.queues import Pause, QueueChanges, QueueSettings, redeclare_queue
from tidemill.core.states import LIVE, State
from tidemill.core.validation import problem_with_name
from tidemill.engine.checkpoints import forget_unfinished
from tidemill.engine.records import Records, announce_end, move_job, release_job_holds
from tidemill.errors import ConfigurationError


def declare_queues(records: Records, queues: Mapping[str, QueueSettings]) -> None:
    """Stores the settings that code declares, by queue name. If one setting is invalid, ConfigurationError is
    raised and nothing is written."""
    for name, settings in queues.items():
        _check_settings(name, settings)
    for name, settings in queues.items():
        queue = records.queue(name)
        queue.declared = redeclare_queue(queue.declared, settings)
        records.topics[queue_topic(name)] = None


def override_queue(records: Records, queue: str, edit: OverrideEdit[QueueChanges]) -> None:
    """Replaces the queue's override with the result of `edit`, which gets the current override and the wall
    time (Q2). Raises ConfigurationError if the result is invalid."""
    check_queue_name(queue)
    known = records.queues.get(queue)
    override = edit(None if known is None else known.override, records.clock.wall())
    if override is not None and (problem := override.problem(QueueSettings())):
        raise ConfigurationError(f"queue {queue!r}: {problem}")
    records.queue(queue).override = override
    records.topics[queue_topic(queue)] = None


def pause_queue(records: Records, queue: str, until: float | None, reason: str | None) -> None:
    """Pauses a queue until the wall time `until`, or until it is resumed if `until` is None. A second pause
    replaces the first."""
    check_queue_name(queue)
    mark = Pause(records.clock.wall(), until, reason)
    if problem := mark.problem():
        raise ConfigurationError(f"queue {queue!r}: {problem}")
    records.queue(queue).pause = mark
    records.topics[queue_topic(queue)] = None


def resume_queue(records: Records, queue: str) -> None:
    check_queue_name(queue)
    records.queue(queue).pause = None
    records.topics[queue_topic(queue)] = None


def list_queues(records: Records) -> list[QueueInfo]:
    """Returns all queues, sorted by name (Q5). A pause that has ended by itself is still listed, with its
    `until`."""
    now = records.clock.wall()
    return [
        make_queue_info(name, queue.declared, queue.override, queue.pause, now)
        for name, queue in sorted(records.queues.items())
    ]


def _check_settings(queue: str, settings: QueueSettings) -> None:
    check_queue_name(queue)
    if problem := settings.problem():
        raise ConfigurationError(f"queue {queue!r}: {problem}")


def check_queue_name(queue: str) -> None:
    if problem := problem_with_name("queue", queue):
        raise ConfigurationError(problem)


def amend(records: Records, job_filter: Filter, change: OperatorChange, limit: int) -> AmendResult:
    """Applies an operator's change to the oldest `limit` jobs that match `job_filter` (J70 to J73). The
    result lists changed and unchanged jobs."""
    check_filter(job_filter)
    meant = [job.id for job in islice(matching_jobs(records, job_filter), limit)]
    done: list[str] = []
    left: list[str] = []
    for id_ in meant:
        job = records.jobs[id_]
        if applies_to(change, job):
            _apply_to_job(records, change, job)
            done.append(id_)
        else:
            left.append(id_)
    return AmendResult(tuple(done), tuple(left))


def matching_jobs(records: Records, job_filter: Filter) -> Iterator[Job]:
    """Yields the jobs that match the filter, oldest first. If the filter has ids, only those jobs are
    examined."""
    if job_filter.ids is None:
        return (job for job in records.jobs.values() if matches_filter(job_filter, job))
    named = (records.jobs[id_] for id_ in set(job_filter.ids) if id_ in records.jobs)
    return iter(sorted((job for job in named if matches_filter(job_filter, job)), key=lambda job: job.seq))


def _apply_to_job(records: Records, change: OperatorChange, job: Job) -> None:
    now = records.clock.wall()
    after = apply_change(change, job, now)
    if after is not None:
        move_job(records, after, now)
    else:
        records.drop(job)
        if job.state in LIVE:
            release_job_holds(records, job)
            announce_end(records, job, now)
    if isinstance(change, RetryJobs):
        forget_unfinished(records, job.id)
    if job.state is State.RUNNING:
        records.pool_ledger.abandon((job.id, job.fence, job.claim), job.worker or "", job.lease)
        records.topics[worker_topic(job.worker or "")] = None
