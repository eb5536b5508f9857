"""What a task is given that runs in the place of a job that failed for good."""

from __future__ import annotations

from typing import Any

import msgspec

from tidemill.core.job import Error


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The job that failed: `step` and `index` say which of the flow it is. `arguments` are those it was to
    run with, results of other steps among them. `attempts` counts the first."""

    flow: str
    key: str | None
    step: str
    index: int
    task: str
    arguments: dict[str, Any]
    error: Error
    attempts: int


ARGUMENTS = "arguments"
"""The field that results are filled into when the job runs."""
