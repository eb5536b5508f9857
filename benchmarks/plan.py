"""What a run consists of: which queue is measured how, how large, how often."""

from __future__ import annotations

from dataclasses import dataclass, field

QUEUES = ("tidemill", "huey", "huey-nosync", "litequeue", "persist-queue")


@dataclass(frozen=True, eq=False)
class Plan:
    """`sizes` is a number of jobs, samples or seconds; `per_queue` where one size would be unfair."""

    measurement: str
    queues: tuple[str, ...]
    size: int
    quick: int
    rounds: int
    per_queue: dict[str, int] = field(default_factory=dict)

    def size_for(self, queue: str, *, quick: bool) -> int:
        full = self.per_queue.get(queue, self.size)
        return full * self.quick // self.size if quick else full


FAST = {"tidemill": 20_000, "tidemill-async": 20_000, "huey-nosync": 20_000, "litequeue": 20_000}

PLANS = (
    Plan("enqueue_lone", ("bare", "tidemill", "tidemill-async", *QUEUES[1:]), 5_000, 1_000, 5),
    Plan(
        "enqueue_together",
        ("tidemill-async", *QUEUES[1:]),
        5_000,
        2_000,
        5,
        FAST | {"tidemill-async": 60_000},
    ),
    Plan("enqueue_bulk", ("tidemill-async",), 100_000, 20_000, 5),
    # Fewer jobs for the slower ones, so that each drain lasts about a second.
    Plan(
        "drain",
        QUEUES,
        5_000,
        2_000,
        5,
        FAST | {"tidemill": 60_000, "litequeue": 4_000, "persist-queue": 3_000},
    ),
    Plan("worker_cost", ("tidemill",), 60_000, 20_000, 5),
    Plan("latency_in_process", (*QUEUES, "tidemill-async"), 100, 20, 2),
    Plan("latency_across_processes", QUEUES, 100, 20, 2),
    Plan("idle", QUEUES, 30, 5, 1),
    Plan("growth", ("tidemill",), 1_000_000, 100_000, 1),
    Plan("blocked_lane", ("tidemill",), 100_000, 20_000, 1),
)
