"""A worker under fire, with short leases. Every answer it gets to a success is written down."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tests.chaos.ledger import Ledger
from tests.chaos.tasks import FOLDER, app
from tidemill.core.claims import ClaimRequest, Settled, Settlement
from tidemill.core.outcomes import Done
from tidemill.stores.sqlite import SqliteStore


class RecordingStore(SqliteStore):
    ledger: Ledger

    async def settle(self, settlements: Sequence[Settlement], request: ClaimRequest | None = None) -> Settled:
        settled = await super().settle(settlements, request)
        for item, answer in zip(settlements, settled.answers, strict=True):
            if isinstance(item.outcome, Done):
                self.ledger.write("settled", item.job, item.fence, answer)
        return settled


async def main() -> None:
    store = RecordingStore(FOLDER / "jobs.db")
    store.ledger = Ledger(FOLDER)
    app._store = store
    await app.work(concurrency=20, lease=2.0, reclaim_every=0.5, poll=0.5, prune_every=5.0)


if __name__ == "__main__":
    asyncio.run(main())
