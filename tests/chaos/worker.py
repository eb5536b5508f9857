"""A worker for the chaos tests, with short leases. It records every answer to a success."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from tests.chaos.tasks import EVENTS, app
from tidemill.core.claims import ClaimRequest, Settlement, SettleResult
from tidemill.core.outcomes import Success


def record_settles(store: type[Any]) -> None:
    """Wraps `settle` of any store: records the answer before the worker gets it."""
    real = store.settle

    async def settle(
        self: Any, settlements: Sequence[Settlement], request: ClaimRequest | None = None
    ) -> SettleResult:
        settled: SettleResult = await real(self, settlements, request)
        for item, answer in zip(settlements, settled.answers, strict=True):
            if isinstance(item.outcome, Success):
                EVENTS.write("settled", item.job, item.fence, answer)
        return settled

    store.settle = settle


async def main(concurrency: int) -> None:
    record_settles(type(app.store))
    await app.work(concurrency=concurrency, lease=2.0, reclaim_every=0.5, poll=0.5, prune_every=5.0)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
