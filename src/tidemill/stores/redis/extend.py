"""extend: leases by one script; news of a run, and what is to be taken back, by the engine."""

from __future__ import annotations

from tidemill.contract.jobs import Extended
from tidemill.core.claims import Heartbeat, Held
from tidemill.engine import extend as engine
from tidemill.engine import plans
from tidemill.stores.redis import scripts
from tidemill.stores.redis.keys import token
from tidemill.stores.redis.records import encode
from tidemill.stores.redis.rows import WorkerText
from tidemill.stores.redis.slow import Slow
from tidemill.stores.redis.wire import Argument

EXTEND = scripts.load("extend")
SLOW = b"slow"


async def extend(slow: Slow, heartbeat: Heartbeat) -> Extended:
    if not any(map(_has_news, heartbeat.held)):
        lost = await slow.shard.run(EXTEND, *_words(heartbeat), repeatable=True)
        if lost != SLOW:
            return Extended(tuple(id_.decode() for id_ in lost))
    return await slow.run(plans.extend(heartbeat), lambda records: engine.extend(records, heartbeat))


def _has_news(held: Held) -> bool:
    return held.progress is not None or held.note is not None or bool(held.log)


def _words(beat: Heartbeat) -> list[Argument]:
    known = WorkerText(host=beat.host, pid=beat.pid, queues=beat.queues, concurrency=beat.concurrency)
    words: list[Argument] = [beat.worker, beat.received, beat.lease, encode(known)]
    for held in beat.held:
        words += (held.job, token(held.fence, held.claim), 1 if held.renew else 0)
    return words
