"""Implements `ctx.transaction()`: settles an attempt in the same database transaction as the rows that its
handler writes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from tidemill.contract.jobs import TransactionalStore
from tidemill.core.claims import ClaimedJob, Settlement
from tidemill.core.outcomes import Success
from tidemill.errors import ConfigurationError
from tidemill.tasks.context import JobTransaction, no_database_error
from tidemill.tasks.definition import TaskDefinition
from tidemill.worker.outcomes import OutcomeSignal, limit_result_size

if TYPE_CHECKING:
    from tidemill.worker.attempt import Attempt


class TransactionEnd(Protocol):
    """The interface between a handler's transaction and the attempt that it settles. `rolled_back` is called
    if the transaction fails."""

    async def commits(self, outcome: Success) -> Settlement:
        """Returns the settlement to write in the transaction, and marks the attempt as committed. The
        heartbeat then does not cancel the handler."""
        ...

    def rolled_back(self) -> None: ...


class WorkerTransactionEnd:
    """Implements `TransactionEnd` for an attempt whose handler runs in the worker process."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    async def commits(self, outcome: Success) -> Settlement:
        self._attempt.committed = outcome
        return self._attempt.settlement(outcome)

    def rolled_back(self) -> None:
        self._attempt.committed = None


@asynccontextmanager
async def settle_in_transaction(
    store: object, job: ClaimedJob, definition: TaskDefinition, ending: TransactionEnd
) -> AsyncIterator[JobTransaction]:
    if not isinstance(store, TransactionalStore):
        raise no_database_error()
    if definition.batch is not None:
        raise ConfigurationError(
            "ctx.transaction(): a batch call has an outcome for each of its jobs; return them"
        )
    try:
        async with store.transaction(job.id, job.fence, job.claim) as opened:
            yield (transaction := JobTransaction(opened.connection))
            outcome = Success(
                None if transaction.result is None else definition.result.encode(transaction.result)
            )
            if job.flow is not None and (fails := limit_result_size(outcome)) is not outcome:
                raise OutcomeSignal(fails)  # noqa: TRY301 - rolled back as any error
            opened.settlement = await ending.commits(outcome)
    except BaseException:
        ending.rolled_back()
        raise
