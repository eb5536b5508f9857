"""How long jobs ran, and how often they could not start, by queue and task: counted in their worker."""

from __future__ import annotations

from tidemill.tallies.families import Family
from tidemill.tallies.instruments import SECONDS

JOB_SECONDS = Family(
    name="tidemill_job_seconds",
    kind="histogram",
    says="How long attempts ran, however they ended, unless they were handed back.",
    labels=("queue", "task"),
    bounds=SECONDS,
)

MISSED_STARTS = Family(
    name="tidemill_job_starts_missed_total",
    kind="counter",
    says="Jobs handed back because more than half of their pool's jitter had passed before they could start.",
    labels=("queue", "task"),
)
