"""Pools, accounts and who holds units, as a step wants to know them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from tidemill.core.accounts import Account
from tidemill.core.ledger import PLACE, Reserved
from tidemill.core.pools import PoolOverride, PoolSettings
from tidemill.engine import wants
from tidemill.engine.ledger import Claim, Pool
from tidemill.stores.postgres.columns import words
from tidemill.stores.postgres.statements import load
from tidemill.stores.postgres.view import Found, View

SQL = load("look_books")
_SETTINGS = msgspec.json.Decoder(PoolSettings)
_OVERRIDE = msgspec.json.Decoder(PoolOverride)
_ACCOUNT = msgspec.json.Decoder(Account)
_RESERVED = msgspec.json.Decoder(Reserved)


def key_text(key: str | None) -> str:
    """No key is empty, so '' is none."""
    return key or ""


def place_of(pool: str, key: str) -> PLACE:
    return pool, key or None


def pool_of(declared: str, override: str | None) -> Pool:
    return Pool(_SETTINGS.decode(declared), None if override is None else _OVERRIDE.decode(override))


def account_of(text: str) -> Account:
    return _ACCOUNT.decode(text)


def _split(places: Iterable[PLACE]) -> tuple[list[str], list[str]]:
    listed = list(places)
    return [pool for pool, _ in listed], [key_text(key) for _, key in listed]


def _apart(claims: Sequence[Claim]) -> tuple[list[str], list[str | None], list[str | None]]:
    jobs, fences, numbers = zip(*claims, strict=True)
    return list(jobs), words(fences), words(numbers)


async def pools(view: View, wanted: Iterable[wants.PoolOf], found: Found) -> None:
    names = [want.name for want in wanted]
    found.update(dict.fromkeys(map(wants.PoolOf, names)))
    for name, declared, override in await view.fetch(SQL.pools, names):
        found[wants.PoolOf(name)] = pool_of(declared, override)


async def names(view: View, wanted: Iterable[wants.PoolNames], found: Found) -> None:
    known = tuple(row["name"] for row in await view.fetch(SQL.names))
    found.update(dict.fromkeys(wanted, known))


async def accounts(view: View, wanted: Iterable[wants.AccountOf], found: Found) -> None:
    places_ = [want.place for want in wanted]
    found.update(dict.fromkeys(map(wants.AccountOf, places_)))
    for pool, key, text in await view.fetch(SQL.accounts, *_split(places_)):
        found[wants.AccountOf(place_of(pool, key))] = account_of(text)


async def places(view: View, wanted: Iterable[wants.PlacesOf], found: Found) -> None:
    known: dict[str, list[PLACE]] = {want.pool: [] for want in wanted}
    for pool, key in await view.fetch(SQL.places, list(known)):
        known[pool].append(place_of(pool, key))
    for pool, of_pool in known.items():
        found[wants.PlacesOf(pool)] = tuple(of_pool)


async def reserved(view: View, wanted: Iterable[wants.ReservedBy], found: Found) -> None:
    claims = [want.claim for want in wanted]
    held: dict[Claim, list[Reserved]] = {claim: [] for claim in claims}
    for job, fence, claim, text in await view.fetch(SQL.reserved, *_apart(claims)):
        held[job, fence, claim].append(_RESERVED.decode(text))
    for by, units in held.items():
        found[wants.ReservedBy(by)] = tuple(units)


async def reserved_at(view: View, wanted: Iterable[wants.ReservedAt], found: Found) -> None:
    rows = await view.fetch(SQL.reserved_at, *_split(want.place for want in wanted))
    for pool, key, count in rows:
        found[wants.ReservedAt(place_of(pool, key))] = count


async def claims_on(view: View, wanted: Iterable[wants.ClaimsOn], found: Found) -> None:
    claims: dict[str, list[Claim]] = defaultdict(list)
    asked = [want.pool for want in wanted]
    for pool, job, fence, claim in await view.fetch(SQL.claims_on, asked):
        claims[pool].append((job, fence, claim))
    for pool in asked:
        found[wants.ClaimsOn(pool)] = tuple(claims[pool])


async def left_over(view: View, wanted: Iterable[wants.LeftOver], found: Found) -> None:
    for want in wanted:
        rows = await view.fetch(SQL.left_over, view.numbers.boot, list(want.dead))
        found[want] = tuple((job, fence, claim) for job, fence, claim in rows)


async def unheard(view: View, wanted: Iterable[wants.UnheardOf], found: Found) -> None:
    claims = [want.claim for want in wanted]
    found.update(dict.fromkeys(map(wants.UnheardOf, claims)))
    for job, fence, claim, since in await view.fetch(SQL.unheard, *_apart(claims)):
        found[wants.UnheardOf((job, fence, claim))] = since
