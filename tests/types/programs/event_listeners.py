"""Types of event listeners."""

from __future__ import annotations

from typing import reveal_type

from tidemill import JobFailed as JobFailedError
from tidemill import Tidemill
from tidemill.telemetry.events import JobEnqueued, JobFailed

app = Tidemill("memory://")


@app.on(JobFailed)
def tell(event: JobFailed) -> str:
    reveal_type(event.job)  # reveals: str
    return event.job


@app.on(JobFailed, JobEnqueued)
def tell_both(event: JobFailed | JobEnqueued) -> None:
    reveal_type(event.queue)  # reveals: str


@app.on()
def tell_all(event: object) -> None: ...


reveal_type(tell)  # reveals: (event: JobFailed) -> str
app.on(JobFailedError)  # expect: arg-type, reportArgumentType
app.on("JobFailed")  # expect: arg-type, reportArgumentType
app.on(JobFailed)(3)  # expect: type-var, reportArgumentType
