"""How long jobs ran, by queue and task: measured in the worker that ran them."""

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
