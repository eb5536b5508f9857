"""Loads pools, accounts and reservations for the engine, and lists pools with their history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from tidemill.clock import Entropy
from tidemill.contract.pools import PoolMinute, PoolView
from tidemill.core.accounts import Account
from tidemill.core.ledger import AccountKey, HeldReservation
from tidemill.core.overrides import Override
from tidemill.core.pool_statistics import PoolHistoryEntry
from tidemill.core.pools import LimitChanges, PoolSettings
from tidemill.engine import pools as engine
from tidemill.engine import queries
from tidemill.engine.ledger import ClaimKey, PoolRecord
from tidemill.engine.queries import StoreCounters
from tidemill.engine.records import Records
from tidemill.engine.transaction_records import FrozenClock
from tidemill.stores.postgres.connection import PostgresConnection
from tidemill.stores.postgres.load_jobs import LoadedRows, TransactionView
from tidemill.stores.postgres.rows import text_array
from tidemill.stores.postgres.statements import load_statements
from tidemill.stores.postgres.transaction import PostgresTransaction

POOL_SQL = load_statements("load_pools")
_SETTINGS = msgspec.json.Decoder(PoolSettings)
_OVERRIDE = msgspec.json.Decoder(Override[LimitChanges])
_ACCOUNT = msgspec.json.Decoder(Account)
_RESERVED = msgspec.json.Decoder(HeldReservation)


def key_text(key: str | None) -> str:
    """Returns the key of an account as text for its column. '' means no key, because a key is never empty."""
    return key or ""


def account_key(pool: str, key: str) -> AccountKey:
    return pool, key or None


def pool_of(declared: str, override: str | None) -> PoolRecord:
    return PoolRecord(_SETTINGS.decode(declared), None if override is None else _OVERRIDE.decode(override))


def account_of(text: str) -> Account:
    return _ACCOUNT.decode(text)


def _split_keys(accounts: Iterable[AccountKey]) -> tuple[list[str], list[str]]:
    listed = list(accounts)
    return [pool for pool, _ in listed], [key_text(key) for _, key in listed]


def _split_claims(claims: Sequence[ClaimKey]) -> tuple[list[str], list[str | None], list[str | None]]:
    jobs, fences, numbers = zip(*claims, strict=True)
    return list(jobs), text_array(fences), text_array(numbers)


async def load_pools(
    view: TransactionView, requested: Iterable[queries.PoolByName], found: LoadedRows
) -> None:
    names = [want.name for want in requested]
    found.update(dict.fromkeys(map(queries.PoolByName, names)))
    for name, declared, override in await view.fetch(POOL_SQL.pools, names):
        found[queries.PoolByName(name)] = pool_of(declared, override)


async def load_pool_names(
    view: TransactionView, requested: Iterable[queries.PoolNames], found: LoadedRows
) -> None:
    known = tuple(row["name"] for row in await view.fetch(POOL_SQL.names))
    found.update(dict.fromkeys(requested, known))


async def load_accounts(
    view: TransactionView, requested: Iterable[queries.AccountByKey], found: LoadedRows
) -> None:
    accounts = [want.account_key for want in requested]
    found.update(dict.fromkeys(map(queries.AccountByKey, accounts)))
    for pool, key, text in await view.fetch(POOL_SQL.accounts, *_split_keys(accounts)):
        found[queries.AccountByKey(account_key(pool, key))] = account_of(text)


async def load_account_keys(
    view: TransactionView, requested: Iterable[queries.PoolAccountKeys], found: LoadedRows
) -> None:
    known: dict[str, list[AccountKey]] = {want.pool: [] for want in requested}
    for pool, key in await view.fetch(POOL_SQL.account_keys, list(known)):
        known[pool].append(account_key(pool, key))
    for pool, of_pool in known.items():
        found[queries.PoolAccountKeys(pool)] = tuple(of_pool)


async def load_reservations(
    view: TransactionView, requested: Iterable[queries.ClaimReservations], found: LoadedRows
) -> None:
    claims = [want.claim for want in requested]
    held: dict[ClaimKey, list[HeldReservation]] = {claim: [] for claim in claims}
    for job, fence, claim, text in await view.fetch(POOL_SQL.reserved, *_split_claims(claims)):
        held[job, fence, claim].append(_RESERVED.decode(text))
    for by, units in held.items():
        found[queries.ClaimReservations(by)] = tuple(units)


async def load_reservation_counts(
    view: TransactionView, requested: Iterable[queries.AccountReservationCount], found: LoadedRows
) -> None:
    rows = await view.fetch(POOL_SQL.reserved_at, *_split_keys(want.account_key for want in requested))
    for pool, key, count in rows:
        found[queries.AccountReservationCount(account_key(pool, key))] = count


async def load_claims_on_pool(
    view: TransactionView, requested: Iterable[queries.PoolClaims], found: LoadedRows
) -> None:
    claims: dict[str, list[ClaimKey]] = defaultdict(list)
    pools = [want.pool for want in requested]
    for pool, job, fence, claim in await view.fetch(POOL_SQL.claims_on, pools):
        claims[pool].append((job, fence, claim))
    for pool in pools:
        found[queries.PoolClaims(pool)] = tuple(claims[pool])


async def load_abandoned_claims(
    view: TransactionView, requested: Iterable[queries.AbandonedClaims], found: LoadedRows
) -> None:
    for want in requested:
        rows = await view.fetch(POOL_SQL.abandoned_claims, view.numbers.boot, list(want.dead))
        found[want] = tuple((job, fence, claim) for job, fence, claim in rows)


async def load_unconfirmed_units(
    view: TransactionView, requested: Iterable[queries.UnconfirmedSince], found: LoadedRows
) -> None:
    claims = [want.claim for want in requested]
    found.update(dict.fromkeys(map(queries.UnconfirmedSince, claims)))
    for job, fence, claim, since in await view.fetch(POOL_SQL.unconfirmed_units, *_split_claims(claims)):
        found[queries.UnconfirmedSince((job, fence, claim))] = since


READER_SQL = load_statements("reader")


async def list_pools(connection: PostgresConnection, entropy: Entropy) -> list[PoolView]:
    """Returns all pools, read from one snapshot. Includes an entry for each key that is closed, has used
    units, or has reservations (P7)."""

    async def read(transaction: PostgresTransaction) -> list[PoolView]:
        return engine.list_pools(await load_ledger(transaction, entropy))

    return await connection.run(read)


async def load_ledger(transaction: PostgresTransaction, entropy: Entropy) -> Records:
    """Returns new engine records with all pools, all accounts and each account's number of reservations."""
    time = await transaction.time()
    clock = FrozenClock(StoreCounters(time.wall, time.boot, transaction.clock.boot_id, 0, 0, 0))
    records = Records(clock, entropy)
    pool_ledger = records.pool_ledger
    for name, *texts in await transaction.fetch(READER_SQL.pools):
        pool_ledger.pools[name] = pool_of(*texts)
    for pool, key, account in await transaction.fetch(READER_SQL.accounts):
        pool_ledger.accounts[account_key(pool, key)] = account_of(account)
    for pool, key, count in await transaction.fetch(READER_SQL.open_reservations):
        pool_ledger.count_open(account_key(pool, key), count)
    return records


async def pool_history(connection: PostgresConnection, pool: str, since: float) -> list[PoolMinute]:
    """Returns the history of a pool, one entry per minute (P8). It starts with the minute that contains the
    wall time `since`."""
    found: list[PoolMinute] = []
    for minute, *row in await connection.fetch(READER_SQL.pool_history, pool, since // 60 * 60):
        entry = pool_minute_of(*row)
        found.append(PoolMinute(at=minute, calls=entry.calls, units=entry.units, refusals=entry.refusals))
    return found


def pool_minute_of(calls: int, units: str, refusals: str) -> PoolHistoryEntry:
    return PoolHistoryEntry(calls=calls, units=_UNITS.decode(units), refusals=_REFUSALS.decode(refusals))


_UNITS = msgspec.json.Decoder(dict[str, float])


_REFUSALS = msgspec.json.Decoder(dict[str, int])
