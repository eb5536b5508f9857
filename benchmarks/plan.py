"""The plan of a run: the measurements of each queue, their sizes and their rounds."""

from __future__ import annotations

from dataclasses import dataclass, field

STORES = ("redis", "postgres", "sqlite")


@dataclass(frozen=True, eq=False)
class MeasurementPlan:
    """One measurement. `size` is a number of jobs, samples or seconds.

    `per_queue` overrides it for queues where the common size is unfair or unnecessary. `seconds` is the
    approximate duration of one round."""

    measurement: str
    queues: tuple[str, ...]
    size: float
    quick: float
    rounds: int
    per_queue: dict[str, int] = field(default_factory=dict)
    seconds: float = 2.5

    def size_for(self, queue: str, *, quick: bool) -> float:
        full = self.per_queue.get(queue, self.size)
        return full * self.quick / self.size if quick else full

    @property
    def patience(self) -> float:
        """Timeout in seconds."""
        return 120 + 10 * self.seconds


OWN = ("tidemill",)
AWAITED = ("tidemill-async",)
FLOWS = ("tidemill-flows",)

SCHEDULES = (
    MeasurementPlan("schedules_at_once", OWN, 10_000, 1_000, 3, seconds=15),
    MeasurementPlan("schedules_spread", OWN, 10_000, 1_000, 1, seconds=75),
)


def _flows(*queues: str, slower: dict[str, int] | None = None) -> tuple[MeasurementPlan, ...]:
    return (
        MeasurementPlan("chains", queues, 500, 50, 3, slower or {}, seconds=5),
        MeasurementPlan("lone_chain", queues, 100, 20, 3),
        MeasurementPlan("fan_out", queues, 1_000, 100, 3),
    )


REDIS_PYTHON = (
    "arq",
    "bullmq-python",
    "celery",
    "dramatiq",
    "huey",
    "rq",
    "saq",
    "streaq",
    "taskiq",
    "taskiq-stream",
)
REDIS_PEERS = ("bullmq-node", *REDIS_PYTHON)

# Slower queues get fewer jobs, so that each drain takes one or two seconds.
REDIS_DRAINS = {"tidemill": 100_000, "bullmq-node": 40_000, "celery": 2_000, "rq": 800, "arq": 3_000}

REDIS = (
    MeasurementPlan("ceilings", ("asyncio-loop", "lua-claim"), 1, 0.3, 3),
    MeasurementPlan("enqueue_lone", ("bare", *OWN, "bare-async", *AWAITED), 1, 0.3, 11),
    MeasurementPlan("enqueue_lone", REDIS_PEERS, 1, 0.3, 3),
    MeasurementPlan("enqueue_together", (*AWAITED, *REDIS_PEERS), 1, 0.3, 3),
    MeasurementPlan(
        "enqueue_bulk", (*AWAITED, "bullmq-node", "bullmq-python", "rq", "streaq"), 1, 0.3, 3, seconds=3
    ),
    MeasurementPlan("drain", (*OWN, *REDIS_PEERS), 6_000, 2_000, 3, REDIS_DRAINS, seconds=4.5),
    MeasurementPlan("drain_two", (*OWN, *REDIS_PEERS), 6_000, 2_000, 3, REDIS_DRAINS, seconds=4.5),
    MeasurementPlan("latency", (*AWAITED, *REDIS_PEERS), 300, 60, 3, {"tidemill-async": 1_000}, seconds=5),
    MeasurementPlan("footprint", (*AWAITED, *REDIS_PEERS), 20_000, 1_000, 1, {"celery": 5_000, "rq": 5_000}),
    MeasurementPlan("idle", (*OWN, *REDIS_PEERS), 6, 1, 1, {"tidemill": 20}, seconds=9),
    *_flows(*FLOWS, "bullmq-flows", "celery-canvas", slower={"celery-canvas": 200}),
    *SCHEDULES,
    MeasurementPlan("growth", OWN, 1_000_000, 100_000, 1, seconds=60),
)

POSTGRES_PEERS = ("pgqueuer", "chancy", "procrastinate", "saq")

# Fewer jobs do not make the slower queues look slower.
POSTGRES_DRAINS = {"procrastinate": 2_000, "saq": 2_000}

POSTGRES = (
    MeasurementPlan("ceilings", ("asyncio-loop",), 1, 0.3, 3),
    MeasurementPlan("enqueue_lone", ("bare-async", *AWAITED, "pgqueuer"), 1, 0.3, 11, seconds=3),
    MeasurementPlan("enqueue_lone", ("chancy", "procrastinate", "saq"), 1, 0.3, 3, seconds=3),
    MeasurementPlan("enqueue_together", (*AWAITED, *POSTGRES_PEERS), 1, 0.3, 3, seconds=3),
    MeasurementPlan("enqueue_bulk", (*AWAITED, "pgqueuer", "chancy", "procrastinate"), 1, 0.3, 3, seconds=4),
    MeasurementPlan("drain", (*OWN, *POSTGRES_PEERS), 10_000, 5_000, 5, POSTGRES_DRAINS, seconds=6),
    MeasurementPlan("drain_100k", (*OWN, "pgqueuer"), 100_000, 20_000, 3, seconds=20),
    MeasurementPlan("drain_two", (*OWN, *POSTGRES_PEERS), 10_000, 5_000, 3, POSTGRES_DRAINS, seconds=6),
    MeasurementPlan("latency", (*AWAITED, *POSTGRES_PEERS), 300, 60, 3, {"tidemill-async": 1_000}, seconds=6),
    MeasurementPlan("footprint", (*AWAITED, *POSTGRES_PEERS), 10_000, 1_000, 1),
    MeasurementPlan("idle", (*OWN, *POSTGRES_PEERS), 10, 1, 1, {"tidemill": 20}, seconds=14),
    *_flows(*FLOWS),
    *SCHEDULES,
    MeasurementPlan("growth", OWN, 1_000_000, 60_000, 1, seconds=60),
    MeasurementPlan("growth_under_snapshot", OWN, 1_000_000, 60_000, 1, seconds=60),
)

SQLITE_PEERS = ("huey", "huey-nosync", "litequeue", "persist-queue")
SQLITE_DRAINS = {"tidemill": 60_000, "huey-nosync": 20_000, "litequeue": 4_000, "persist-queue": 3_000}

SQLITE = (
    MeasurementPlan("enqueue_lone", ("bare", *OWN, *AWAITED), 1, 0.3, 11),
    MeasurementPlan("enqueue_lone", SQLITE_PEERS, 1, 0.3, 3),
    MeasurementPlan("enqueue_together", (*AWAITED, *SQLITE_PEERS), 1, 0.3, 5),
    MeasurementPlan("enqueue_bulk", AWAITED, 1, 0.3, 5),
    MeasurementPlan("drain", (*OWN, *SQLITE_PEERS), 5_000, 1_500, 5, SQLITE_DRAINS, seconds=8),
    MeasurementPlan("drain_two", (*OWN, *SQLITE_PEERS), 5_000, 1_500, 3, SQLITE_DRAINS, seconds=8),
    MeasurementPlan("worker_cost", OWN, 60_000, 20_000, 5, seconds=6),
    MeasurementPlan("latency_in_process", (*OWN, *SQLITE_PEERS), 100, 10, 3, seconds=8),
    MeasurementPlan("latency", (*OWN, *SQLITE_PEERS), 300, 60, 3, {"tidemill": 1_000}, seconds=6),
    MeasurementPlan("footprint", (*OWN, *SQLITE_PEERS), 10_000, 1_000, 1, seconds=10),
    MeasurementPlan("idle", (*OWN, *SQLITE_PEERS), 10, 1, 1, {"tidemill": 30}, seconds=16),
    *_flows(*FLOWS),
    *SCHEDULES,
    MeasurementPlan("growth", OWN, 1_000_000, 60_000, 1, seconds=60),
    MeasurementPlan("small", OWN, 10, 3, 1, seconds=20),
    MeasurementPlan("blocked_lane", OWN, 100_000, 20_000, 1, seconds=10),
)

PLANS = {"redis": REDIS, "postgres": POSTGRES, "sqlite": SQLITE}
MEASUREMENTS = sorted({plan.measurement for plans in PLANS.values() for plan in plans})
