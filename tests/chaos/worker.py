"""A worker under fire, with short leases. Every answer it gets to a success is written down."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from tests.chaos.tasks import LEDGER, app
from tidemill.core.claims import ClaimRequest, Settled, Settlement
from tidemill.core.outcomes import Done


def record_settles(store: type[Any]) -> None:
    """Whatever store it is: what the worker is told is written down before the worker hears it."""
    real = store.settle

    async def settle(
        self: Any, settlements: Sequence[Settlement], request: ClaimRequest | None = None
    ) -> Settled:
        settled: Settled = await real(self, settlements, request)
        for item, answer in zip(settlements, settled.answers, strict=True):
            if isinstance(item.outcome, Done):
                LEDGER.write("settled", item.job, item.fence, answer)
        return settled

    store.settle = settle


async def main(concurrency: int) -> None:
    record_settles(type(app.store))
    await app.work(concurrency=concurrency, lease=2.0, reclaim_every=0.5, poll=0.5, prune_every=5.0)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
