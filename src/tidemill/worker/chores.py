"""The loop every chore shares: wait, see whether this worker leads, do it, survive its failure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tidemill.contract.wakeups import Listener
from tidemill.errors import StoreError
from tidemill.telemetry.events import ChoreBroke, ChoreFailed
from tidemill.worker.emitter import Emitter, described, with_traceback
from tidemill.worker.leader import Leader

_LEAD_LONGER = 1.2
"""A leader asks again before its lease is over, and a dead one is replaced within little more
than one period."""


async def every(
    seconds: float,
    duty: str,
    leader: Leader | None,
    do: Callable[[], Awaitable[bool]],
    emitter: Emitter,
    *,
    listener: Listener | None = None,
) -> None:
    """Do it every so often, and again at once while it answers that there is more. Without a
    leader every worker does it. Whoever rings the listener has it done at once."""
    failing = False
    while True:
        if listener is not None:
            listener.arm()
        try:
            leads = leader is None or await leader.leads(duty, seconds * _LEAD_LONGER)
            more = leads and await do()
            failing = False
        except StoreError as error:
            more = False
            if not failing:
                emitter.worker_event(ChoreFailed, chore=duty, **described(error))
            failing = True
        except Exception as error:  # noqa: BLE001 - one broken chore must not end the worker
            more = False
            emitter.worker_event(ChoreBroke, chore=duty, **with_traceback(error))
        # Between two rounds of a long chore others get their turn at the store.
        if listener is not None and not more:
            await listener.wait(seconds)
        else:
            await asyncio.sleep(min(seconds, 0.01) if more else seconds)
