"""The loop every chore shares: wait until it is called for here, do it, survive its failure."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable

from tidemill.contract.store import Store
from tidemill.errors import StoreError
from tidemill.telemetry.events import ChoreBroke, ChoreFailed
from tidemill.worker.bell import ARMED_FOR
from tidemill.worker.duty import Duty
from tidemill.worker.emitter import Emitter, described, with_traceback

NEVER = math.inf
"""The period of a chore that is only done when it is called for."""

TRY_AGAIN_AFTER = 5.0
BETWEEN_ROUNDS = 0.01
"""Between two rounds of a long chore others get their turn at the store."""

SHORTEST_REST = 0.001


async def every(
    seconds: float,
    duty: Duty,
    do: Callable[[], Awaitable[bool]],
    emitter: Emitter,
    *,
    rest: Callable[[], float | None] | None = None,
) -> None:
    """Do it every so often, and whenever it is called for; again at once while it answers that there is more.
    `rest` says when it is to be done again, if that is sooner."""
    failing, time = False, asyncio.get_running_loop().time
    while True:
        await duty.called()
        began = time()
        duty.at = began + seconds  # whatever calls while it is done is about what it may have missed
        try:
            more = await do()
            failing = False
            duty.done.set()
            if more:
                duty.call(time() + BETWEEN_ROUNDS)
            elif rest is not None and (soon := rest()) is not None:
                duty.call(time() + max(SHORTEST_REST, soon))
        except StoreError as error:
            if not failing:
                emitter.worker_event(ChoreFailed, chore=duty.name, **described(error))
            failing = True
        except Exception as error:  # noqa: BLE001 - one broken chore must not end the worker
            emitter.worker_event(ChoreBroke, chore=duty.name, **with_traceback(error))
        else:
            continue
        duty.at = time() + (seconds if seconds < NEVER else TRY_AGAIN_AFTER)


async def when_rung(store: Store, topic: str, duty: Duty) -> None:
    """Have it done at once when somebody rings. While it is another's, nobody listens here."""
    with contextlib.closing(store.listen([topic])) as listener:
        while True:
            if not duty.ours:
                listener.disarm()
                await duty.is_ours()
            listener.arm()
            duty.done.clear()
            duty.call()
            await duty.done.wait()  # a store that is away rings at once, again and again
            await listener.wait(ARMED_FOR)
