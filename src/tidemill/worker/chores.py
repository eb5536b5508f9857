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
    rest: Callable[[], float] | None = None,
) -> None:
    """Do it every so often, and again at once while it answers that there is more. Without a
    leader every worker does it. Whoever rings the listener of the one who does it has it done at once.
    `rest` says when it is to be done again, if that is sooner."""
    failing = False
    while True:
        leads = more = False
        pause = seconds
        try:
            leads = leader is None or await leader.leads(duty, seconds * _LEAD_LONGER)
            if listener is not None:
                (listener.arm if leads else listener.disarm)()
            more = leads and await do()
            failing = False
            pause = min(seconds, rest()) if leads and rest is not None else seconds
        except StoreError as error:
            if not failing:
                emitter.worker_event(ChoreFailed, chore=duty, **described(error))
            failing = True
        except Exception as error:  # noqa: BLE001 - one broken chore must not end the worker
            emitter.worker_event(ChoreBroke, chore=duty, **with_traceback(error))
        # Between two rounds of a long chore others get their turn at the store.
        if listener is not None and leads and not more:
            await listener.wait(pause)
        else:
            await asyncio.sleep(min(pause, 0.01) if more else pause)
