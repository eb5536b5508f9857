"""U2 for pools: what accounts count for calls under way is what is reserved for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence

from tidemill.core.ledger import PLACE
from tidemill.core.recount import miscounted
from tidemill.core.reserving import Reservation
from tidemill.stores.redis import keys
from tidemill.stores.redis.rows import account_of, pool_of, reserved_of
from tidemill.stores.redis.scanning import fields
from tidemill.stores.redis.scripts import load
from tidemill.stores.redis.shard import Shard

RESERVED = load("reserved")
AT_ONCE = 200

Held = dict[PLACE, list[Reservation]]


async def check_pools(shard: Shard) -> AsyncIterator[str]:
    ownerless: set[bytes] = set()
    async for name, text in fields(shard, keys.POOLS):
        pool, limits = name.decode(), pool_of(text).declared.limits
        known = [key async for key, _ in fields(shard, keys.accounts(pool))]
        for start in range(0, max(len(known), 1), AT_ONCE):
            some = known[start : start + AT_ONCE]
            accounts, reserved, stray, counted = await shard.run(RESERVED, pool, *some, repeatable=True)
            ownerless.update(stray)
            held = _held(reserved)
            for key, account in zip(some, accounts, strict=True):
                if account is not None:
                    at = pool, key.decode() or None
                    for sentence in miscounted(_shown(at), limits, account_of(account).state, held[at]):
                        yield sentence
        for sentence in _uncounted(pool, held, counted):
            yield sentence
    for claim in sorted(ownerless):
        yield f"units are kept for the job {keys.claim_of(claim)[0]!r}, which does not run with them"


def _held(reserved: Sequence[bytes]) -> Held:
    found: Held = defaultdict(list)
    for text in reserved[1::2]:
        for one in reserved_of(text):
            found[one.place].append(one.reservation)
    return found


def _uncounted(pool: str, held: Held, counted: Sequence[bytes]) -> Iterator[str]:
    """How many are open at a place is asked by whoever may forget it."""
    says = {keys.place_of(at): int(count) for at, count in zip(counted[::2], counted[1::2], strict=True)}
    for at in sorted({at for at in (*says, *held) if at[0] == pool}, key=keys.place):
        if says.get(at, 0) != len(held[at]):
            yield f"{_shown(at)} counts {says.get(at, 0)} open reservations but has {len(held[at])}"


def _shown(place: PLACE) -> str:
    pool, key = place
    return f"{pool} ({key})" if key else pool
