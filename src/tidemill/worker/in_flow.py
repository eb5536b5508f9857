"""What is different about a job of a flow: it is given other steps' results, and others are given its own."""

from __future__ import annotations

from tidemill.core.claims import Claimed
from tidemill.core.flow_jobs import RESULT_BYTES
from tidemill.core.job import Error
from tidemill.core.outcomes import Done, Fail, Outcome, Snooze
from tidemill.errors import InvalidPayload, StoreError
from tidemill.worker.attempt import Attempt
from tidemill.worker.translate import Ends

AGAIN_IN = 1.0


async def give_results(attempt: Attempt) -> None:
    """Its payload gets what it was made without. A store that does not answer costs it no attempt."""
    from tidemill.flows.results import ResultGone, ResultsTooLarge, filled  # most jobs are of no flow

    job = attempt.job
    assert job.flow is not None  # noqa: S101 - asked by the executor
    try:
        job.payload = await filled(attempt.metering.store, job.flow, job.payload)
    except ResultGone as error:
        raise Ends(Fail(Error("ResultGone", str(error)), "result gone")) from None
    except ResultsTooLarge as error:
        raise Ends(Fail(Error("ResultsTooLarge", str(error)), "results too large")) from None
    except StoreError as error:
        raise Ends(Snooze(AGAIN_IN, f"the results it takes could not be read: {error}")) from None


def fitting(outcome: Outcome) -> Outcome:
    """A result that is too large for others to read is none."""
    result = outcome.result if isinstance(outcome, Done) else None
    if result is None or len(result) <= RESULT_BYTES:
        return outcome
    sentence = (
        f"the result has {len(result)} bytes, a step of a flow may return {RESULT_BYTES}; "
        "store it elsewhere and return where it is"
    )
    return Fail(Error("ResultTooLarge", sentence), "result too large")


def unreadable(job: Claimed, error: InvalidPayload) -> Fail:
    if job.flow is None:
        return Fail(Error("InvalidPayload", str(error)), "invalid payload")
    from tidemill.flows.making import whence

    return Fail(Error("InvalidPayload", f"{error}{whence(job.flow)}"), "invalid payload")
