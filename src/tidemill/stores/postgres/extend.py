"""extend: a worker says what it holds."""

from __future__ import annotations

from tidemill.contract.jobs import Extended
from tidemill.core.claims import Heartbeat
from tidemill.engine import extend as engine
from tidemill.engine import plans
from tidemill.stores.postgres.columns import words
from tidemill.stores.postgres.home import Home
from tidemill.stores.postgres.rows import text_of
from tidemill.stores.postgres.statements import load

SQL = load("plain")


async def extend(home: Home, heartbeat: Heartbeat) -> Extended:
    held = heartbeat.held
    if len({one.job for one in held}) == len(held):
        said = [(one.job, line) for one in held for line in one.log]
        (row,) = await home.connection.fetch(
            SQL.extend,
            *home.connection.clock.asked(),
            heartbeat.worker,
            heartbeat.received,
            heartbeat.lease,
            heartbeat.host,
            heartbeat.pid,
            text_of(heartbeat.queues),
            heartbeat.concurrency,
            [one.job for one in held],
            words(one.fence for one in held),
            words(one.claim for one in held),
            words(one.renew for one in held),
            words(one.progress for one in held),
            [one.note for one in held],
            [job for job, _ in said],
            words(line.age for _, line in said),
            [line.line for _, line in said],
            repeatable=not said,
        )
        home.connection.clock.heard(row["wall"], row["boot"], row["epoch"])
        if row["plain"]:
            return Extended(
                tuple(one.job for one, current in zip(held, row["current"], strict=True) if current != "true")
            )
    return await home.run(plans.extend(heartbeat), lambda records: engine.extend(records, heartbeat))
