"""What a run consists of: which queue is measured how, how large, how often."""

from __future__ import annotations

from dataclasses import dataclass, field

STORES = ("redis", "postgres", "sqlite")


@dataclass(frozen=True, eq=False)
class Plan:
    """`size` is a number of jobs, samples or seconds; `per_queue` where one size would be unfair."""

    measurement: str
    queues: tuple[str, ...]
    size: float
    quick: float
    rounds: int
    per_queue: dict[str, int] = field(default_factory=dict)

    def size_for(self, queue: str, *, quick: bool) -> float:
        full = self.per_queue.get(queue, self.size)
        return full * self.quick / self.size if quick else full


OWN = ("tidemill",)
AWAITED = ("tidemill-async",)

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

# Fewer jobs for the slower ones, so that each drain lasts a second or two.
REDIS_DRAINS = {"tidemill": 100_000, "bullmq-node": 40_000, "celery": 2_000, "rq": 800, "arq": 3_000}

REDIS = (
    Plan("ceilings", ("asyncio-loop", "lua-claim"), 1, 0.3, 3),
    Plan("enqueue_lone", ("bare", *OWN, "bare-async", *AWAITED, *REDIS_PEERS), 1, 0.3, 11),
    Plan("enqueue_together", (*AWAITED, *REDIS_PEERS), 1, 0.3, 3),
    Plan("enqueue_bulk", (*AWAITED, "bullmq-node", "bullmq-python", "rq", "streaq"), 1, 0.3, 5),
    Plan("drain", (*OWN, *REDIS_PEERS), 6_000, 2_000, 5, REDIS_DRAINS),
    Plan("drain_two", (*OWN, *REDIS_PEERS), 6_000, 2_000, 3, REDIS_DRAINS),
    Plan("latency", (*AWAITED, *REDIS_PEERS), 1_000, 60, 2),
    Plan("footprint", (*AWAITED, *REDIS_PEERS), 20_000, 1_000, 1, {"celery": 5_000, "rq": 5_000}),
    Plan("idle", (*OWN, *REDIS_PEERS), 20, 1, 1),
    Plan("growth", OWN, 1_000_000, 100_000, 1),
)

POSTGRES_PEERS = ("pgqueuer", "chancy", "procrastinate", "saq")

# The slower ones are not made slower by fewer jobs.
POSTGRES_DRAINS = {"procrastinate": 2_000, "saq": 2_000}

POSTGRES = (
    Plan("ceilings", ("asyncio-loop",), 1, 0.3, 3),
    Plan("enqueue_lone", ("bare-async", *AWAITED, *POSTGRES_PEERS), 1, 0.3, 7),
    Plan("enqueue_together", (*AWAITED, *POSTGRES_PEERS), 1, 0.3, 3),
    Plan("enqueue_bulk", (*AWAITED, "pgqueuer", "chancy", "procrastinate"), 1, 0.3, 5),
    Plan("drain", (*OWN, *POSTGRES_PEERS), 10_000, 5_000, 5, POSTGRES_DRAINS),
    Plan("drain_100k", (*OWN, "pgqueuer"), 100_000, 20_000, 3),
    Plan("drain_two", (*OWN, *POSTGRES_PEERS), 10_000, 5_000, 3, POSTGRES_DRAINS),
    Plan("latency", (*AWAITED, *POSTGRES_PEERS), 1_000, 60, 2),
    Plan("footprint", (*AWAITED, *POSTGRES_PEERS), 10_000, 1_000, 1),
    Plan("idle", (*OWN, *POSTGRES_PEERS), 20, 1, 1),
    Plan("growth", OWN, 1_000_000, 60_000, 1),
    Plan("growth_under_snapshot", OWN, 1_000_000, 60_000, 1),
)

SQLITE_PEERS = ("huey", "huey-nosync", "litequeue", "persist-queue")
SQLITE_DRAINS = {"tidemill": 60_000, "huey-nosync": 20_000, "litequeue": 4_000, "persist-queue": 3_000}

SQLITE = (
    Plan("enqueue_lone", ("bare", *OWN, *AWAITED, *SQLITE_PEERS), 1, 0.3, 5),
    Plan("enqueue_together", (*AWAITED, *SQLITE_PEERS), 1, 0.3, 5),
    Plan("enqueue_bulk", AWAITED, 1, 0.3, 5),
    Plan("drain", (*OWN, *SQLITE_PEERS), 5_000, 1_500, 5, SQLITE_DRAINS),
    Plan("drain_two", (*OWN, *SQLITE_PEERS), 5_000, 1_500, 3, SQLITE_DRAINS),
    Plan("worker_cost", OWN, 60_000, 20_000, 5),
    Plan("latency_in_process", (*OWN, *SQLITE_PEERS), 100, 10, 2),
    Plan("latency", (*OWN, *SQLITE_PEERS), 500, 60, 2),
    Plan("footprint", (*OWN, *SQLITE_PEERS), 10_000, 1_000, 1),
    Plan("idle", (*OWN, *SQLITE_PEERS), 30, 1, 1),
    Plan("growth", OWN, 1_000_000, 60_000, 1),
    Plan("small", OWN, 10, 3, 1),
    Plan("blocked_lane", OWN, 100_000, 20_000, 1),
)

PLANS = {"redis": REDIS, "postgres": POSTGRES, "sqlite": SQLITE}
MEASUREMENTS = sorted({plan.measurement for plans in PLANS.values() for plan in plans})
