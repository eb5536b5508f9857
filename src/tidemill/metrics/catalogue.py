"""Every metric that Tidemill exports. The page docs/reference/metrics.md documents this list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from tidemill.metrics.families import MetricFamily, MetricKind, MetricSamples
from tidemill.metrics.instruments import DURATION_BUCKETS_SECONDS

JOB_DURATION = MetricFamily(
    name="tidemill_job_duration_seconds",
    kind="histogram",
    help_text="How long attempts ran, however they ended, unless they were handed back.",
    labels=("queue", "task"),
    bounds=DURATION_BUCKETS_SECONDS,
)

JOB_STARTS_MISSED = MetricFamily(
    name="tidemill_job_starts_missed_total",
    kind="counter",
    help_text="Jobs released because they started later than half of their pool's jitter.",
    labels=("queue", "task"),
)

DEPENDENCY_WAITS = MetricFamily(
    name="tidemill_dependency_waits_total",
    kind="counter",
    help_text="Attempts put off because a service that they need was away.",
    labels=("queue", "dependency"),
)

PERIODIC_RUNS = MetricFamily(
    name="tidemill_periodic_runs_total",
    kind="counter",
    help_text="Runs of periodic functions.",
    labels=("name",),
)
PERIODIC_FAILURES = MetricFamily(
    name="tidemill_periodic_failures_total",
    kind="counter",
    help_text="Runs of periodic functions that raised an error.",
    labels=("name",),
)


def _metric(kind: MetricKind, name: str, help_text: str, *labels: str) -> MetricFamily:
    return MetricFamily(name=f"tidemill_{name}", kind=kind, help_text=help_text, labels=labels)


QUEUE_JOBS = _metric("gauge", "queue_jobs", "Jobs by state.", "queue", "state")
QUEUE_LATENCY = _metric(
    "gauge",
    "queue_latency_seconds",
    "How long the ready job that waits longest could have been running.",
    "queue",
)
QUEUE_RETRYING = _metric("gauge", "queue_retrying_jobs", "Scheduled jobs that have run before.", "queue")
QUEUE_PAUSED = _metric("gauge", "queue_paused", "1 while the queue is paused.", "queue")
QUEUE_WORKERS = _metric("gauge", "queue_workers", "Workers that serve the queue.", "queue")
QUEUE_DRAIN = _metric(
    "gauge",
    "queue_drain_seconds",
    "Until what is ready now will be done; +Inf for never as things are, missing when nobody can say.",
    "queue",
)
JOBS_DONE = _metric("counter", "jobs_done_total", "Jobs that are done.", "queue")
JOBS_FAILED = _metric("counter", "jobs_failed_total", "Jobs that failed for good.", "queue")
JOBS_CANCELLED = _metric("counter", "jobs_cancelled_total", "Jobs that were cancelled.", "queue")
JOBS_RETRIED = _metric("counter", "jobs_retried_total", "Attempts that failed and were followed.", "queue")
JOBS_RECLAIMED = _metric("counter", "jobs_reclaimed_total", "Attempts whose worker fell silent.", "queue")
JOBS_DROPPED_EARLY = _metric(
    "counter", "jobs_dropped_early_total", "Jobs dropped by count before their age was over.", "queue"
)

POOL_OPEN = _metric("gauge", "pool_open", "1 while the pool is open, 0 while it is closed.", "pool")
POOL_LIMIT = _metric("gauge", "pool_limit_units", "What a limit allows now.", "pool", "limit")
POOL_LIMIT_USED = _metric(
    "gauge",
    "pool_limit_used_units",
    "What is used of a limit; of a keyed pool, the most by a key.",
    "pool",
    "limit",
)
POOL_LIMIT_USED_RATIO = _metric(
    "gauge",
    "pool_limit_used_ratio",
    "The used share of a limit; of a keyed pool, the largest.",
    "pool",
    "limit",
)
POOL_RESERVATIONS = _metric("gauge", "pool_reservations", "Calls under way.", "pool")
POOL_WAITING = _metric("gauge", "pool_waiting_jobs", "Ready jobs that need the pool.", "pool")
POOL_KEYS = _metric("gauge", "pool_keys", "Keys with something taken or closed.", "pool")
POOL_CLOSED_KEYS = _metric("gauge", "pool_closed_keys", "Keys that are closed.", "pool")
POOL_DRAIN = _metric(
    "gauge", "pool_drain_seconds", "As tidemill_queue_drain_seconds, of the jobs that need the pool.", "pool"
)
POOL_CALLS = _metric("counter", "pool_calls_total", "Calls that ended.", "pool")
POOL_UNITS = _metric("counter", "pool_units_total", "What calls used.", "pool", "unit")
POOL_REFUSALS = _metric("counter", "pool_refusals_total", "Calls a provider refused.", "pool", "reason")

WORKERS = _metric("gauge", "workers", "Workers that are alive.")
WORKER_SLOTS = _metric("gauge", "worker_slots", "Jobs that all workers could run at once.")
WORKER_CLAIMED_JOBS = _metric("gauge", "worker_claimed_jobs", "Jobs in the hands of workers.")
FLOWS = _metric("gauge", "flows", "Flows by state.", "state")
SCHEDULES = _metric("gauge", "schedules", "Schedules by state.", "state")
STORE_BYTES = _metric("gauge", "store_size_bytes", "Size of the store, where it can be told.")
STORE_FREE = _metric("gauge", "store_free_bytes", "Space in the store that a compaction would give back.")
STORE_WARNINGS = _metric("gauge", "store_warnings", "Warnings about how the store is set up.")
STORE_INFO = _metric("gauge", "store_info", "1, with what the store is made of.", "kind", "engine")
METRIC_READ_FAILED = _metric("gauge", "metric_read_failed", "1 while what reads a gauge raises.", "metric")

CATALOGUE: tuple[MetricFamily, ...] = (
    QUEUE_JOBS,
    QUEUE_LATENCY,
    QUEUE_RETRYING,
    QUEUE_PAUSED,
    QUEUE_WORKERS,
    QUEUE_DRAIN,
    JOBS_DONE,
    JOBS_FAILED,
    JOBS_CANCELLED,
    JOBS_RETRIED,
    JOBS_RECLAIMED,
    JOBS_DROPPED_EARLY,
    JOB_DURATION,
    JOB_STARTS_MISSED,
    DEPENDENCY_WAITS,
    PERIODIC_RUNS,
    PERIODIC_FAILURES,
    POOL_OPEN,
    POOL_LIMIT,
    POOL_LIMIT_USED,
    POOL_LIMIT_USED_RATIO,
    POOL_RESERVATIONS,
    POOL_WAITING,
    POOL_KEYS,
    POOL_CLOSED_KEYS,
    POOL_DRAIN,
    POOL_CALLS,
    POOL_UNITS,
    POOL_REFUSALS,
    WORKERS,
    WORKER_SLOTS,
    WORKER_CLAIMED_JOBS,
    FLOWS,
    SCHEDULES,
    STORE_BYTES,
    STORE_FREE,
    STORE_WARNINGS,
    STORE_INFO,
    METRIC_READ_FAILED,
)


SeriesKey = TypeVar("SeriesKey", bound=str | tuple[str, ...])


def samples_of(family: MetricFamily, values: Mapping[SeriesKey, float]) -> MetricSamples:
    """Returns the samples of a metric family from `values`, which maps label values to numbers. Label values
    are a tuple, or a text if the family has only one label."""
    return MetricSamples(
        family,
        tuple(((of,) if isinstance(of, str) else of, (float(value),)) for of, value in values.items()),
    )
