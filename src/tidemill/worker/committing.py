"""`ctx.transaction()`: an attempt that ends in one transaction with its handler's rows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from tidemill.contract.transactions import Transactional
from tidemill.core.claims import Claimed, Settlement
from tidemill.core.outcomes import Done
from tidemill.errors import ConfigurationError
from tidemill.tasks.definition import TaskDefinition
from tidemill.tasks.transactions import Transaction, no_database
from tidemill.worker.in_flow import fitting
from tidemill.worker.translate import Ends

if TYPE_CHECKING:
    from tidemill.worker.attempt import Attempt


class AttemptEnd(Protocol):
    """The attempt that a transaction ends."""

    async def commits(self, outcome: Done) -> Settlement:
        """From here on the attempt counts as ended: a heartbeat that finds the job done must not stop the
        handler that did it."""
        ...

    def rolled_back(self) -> None: ...


class EndInWorker:
    """Of an attempt whose handler runs in the worker."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    async def commits(self, outcome: Done) -> Settlement:
        self._attempt.committed = outcome
        return self._attempt.settlement(outcome)

    def rolled_back(self) -> None:
        self._attempt.committed = None


@asynccontextmanager
async def transaction(
    store: object, job: Claimed, definition: TaskDefinition, ending: AttemptEnd
) -> AsyncIterator[Transaction]:
    if not isinstance(store, Transactional):
        raise no_database()
    if definition.batch is not None:
        raise ConfigurationError(
            "ctx.transaction(): a batch call has an outcome for each of its jobs; return them"
        )
    try:
        async with store.transaction(job.id, job.fence, job.claim) as opened:
            yield (given := Transaction(opened.connection))
            outcome = Done(None if given.result is None else definition.result.encode(given.result))
            if job.flow is not None and (fails := fitting(outcome)) is not outcome:
                raise Ends(fails)  # noqa: TRY301 - rolled back as any error
            opened.settlement = await ending.commits(outcome)
    except BaseException:
        ending.rolled_back()
        raise
