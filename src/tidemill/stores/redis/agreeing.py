"""Whether things are filed where their records say, as of one instant (`lua/agrees.lua`)."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1

from tidemill.stores.redis.filing import Filed
from tidemill.stores.redis.scripts import load
from tidemill.stores.redis.shard import Shard
from tidemill.stores.redis.wire import Argument

AGREES = load("agrees")

Kept = tuple[str, bytes]
"""An id and its record, empty when there is none."""


async def failed(
    shard: Shard, records: str, wanted: Sequence[tuple[Kept, list[Filed]]]
) -> list[tuple[Kept, Filed]]:
    """What is not as it should be, of those whose records are still what they were."""
    words: list[Argument] = [records]
    checks: list[tuple[Kept, Filed]] = []
    for kept, places in wanted:
        record = kept[1]
        digest = sha1(record, usedforsecurity=False).hexdigest() if record else ""
        words += [kept[0], digest, len(places)]
        for place in places:
            words += place
            checks.append((kept, place))
    numbers = await shard.run(AGREES, *words, repeatable=True) if checks else []
    return [checks[number - 1] for number in numbers]
