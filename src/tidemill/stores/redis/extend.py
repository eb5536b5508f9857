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
AT_MOST = 1000
"""Jobs it is given at once; `lua/extend.lua` has the same."""


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
        is_last = len(beat.held) - seen <= AT_MOST
        before = {held.job for held in beat.held[:seen]}.difference(lost) if is_last else ()
        reply = await slow.shard.run(EXTEND, *_words(beat, seen), *before, repeatable=True)
        if reply == SLOW:
            return None
        seen += reply[0]
        lost += [id_.decode() for id_ in reply[1:]]
        if seen == len(beat.held):
            return lost


def _has_news(held: Held) -> bool:
    return held.progress is not None or held.note is not None or bool(held.log)


def _words(beat: Heartbeat, seen: int) -> list[Argument]:
    """Of the first it may take behind those that were seen to."""
    known = WorkerText(host=beat.host, pid=beat.pid, queues=beat.queues, concurrency=beat.concurrency)
    words: list[Argument] = [beat.worker, beat.received, beat.lease, encode(known), len(beat.held) - seen]
    for held in beat.held[seen : seen + AT_MOST]:
        words += (held.job, token(held.fence, held.claim), 1 if held.renew else 0)
    return words
