"""`ctx.transaction()`: an attempt that ends in one transaction with its handler's rows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tidemill.contract.transactions import Transactional
from tidemill.core.outcomes import Done
from tidemill.errors import ConfigurationError
from tidemill.tasks.transactions import Transaction, no_database
from tidemill.worker.in_flow import fitting
from tidemill.worker.translate import Ends

if TYPE_CHECKING:
    from tidemill.worker.attempt import Attempt


@asynccontextmanager
async def transaction(attempt: Attempt) -> AsyncIterator[Transaction]:
    """From the moment it is to be committed the attempt counts as ended: a heartbeat that finds the job done
    must not stop the handler that did it."""
    store, job, definition = attempt.metering.store, attempt.job, attempt.definition
    assert definition is not None  # noqa: S101 - an unknown task is never started
    if not isinstance(store, Transactional):
        raise no_database()
    if definition.batch is not None:
        raise ConfigurationError(
            "ctx.transaction(): a batch call has an outcome for each of its jobs; return them"
        )
    try:
        async with store.transaction(job.id, job.fence, job.claim) as ending:
            yield (given := Transaction(ending.connection))
            outcome = Done(None if given.result is None else definition.result.encode(given.result))
            if job.flow is not None and (fails := fitting(outcome)) is not outcome:
                raise Ends(fails)  # noqa: TRY301 - rolled back as any error
            ending.settlement = attempt.settlement(outcome)
            attempt.committed = outcome
    except BaseException:
        attempt.committed = None
        raise
