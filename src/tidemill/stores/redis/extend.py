"""extend: leases by one script; news of a run, and what is to be taken back, by the engine."""

from __future__ import annotations

from collections.abc import Sequence

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
    lost = None if any(map(_has_news, heartbeat.held)) else await _by_the_script(slow, heartbeat)
    if lost is not None:
        return Extended(tuple(lost))
    return await slow.run(plans.extend(heartbeat), lambda records: engine.extend(records, heartbeat))


async def _by_the_script(slow: Slow, beat: Heartbeat) -> list[str] | None:
    """Those that are lost, part by part where it holds many; None when it takes the engine."""
    seen = 0
    lost: list[str] = []
    while True:
        before = (held.job for held in beat.held[:seen] if held.job not in lost)
        reply = await slow.shard.run(EXTEND, *_words(beat, beat.held[seen:]), *before, repeatable=True)
        if reply == SLOW:
            return None
        seen += reply[0]
        lost += [id_.decode() for id_ in reply[1:]]
        if seen == len(beat.held):
            return lost


def _has_news(held: Held) -> bool:
    return held.progress is not None or held.note is not None or bool(held.log)


def _words(beat: Heartbeat, jobs: Sequence[Held]) -> list[Argument]:
    known = WorkerText(host=beat.host, pid=beat.pid, queues=beat.queues, concurrency=beat.concurrency)
    words: list[Argument] = [beat.worker, beat.received, beat.lease, encode(known), len(jobs)]
    for held in jobs:
        words += (held.job, token(held.fence, held.claim), 1 if held.renew else 0)
    return words
