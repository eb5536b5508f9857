"""Every pool as people see it, and which keys nobody has to remember."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.contract.pools import LimitView, PoolMinute, PoolView
from tidemill.core import breaker as breakers
from tidemill.core import learning, usage
from tidemill.core.accounts import Account
from tidemill.core.limits import Limit
from tidemill.core.pools import PoolSettings
from tidemill.core.windows import Instant
from tidemill.stores.sqlite.ledger import (
    ACCOUNTS,
    POOLS,
    RESERVATIONS,
    PoolRow,
    account_of,
    pool_row,
    remark_of,
)
from tidemill.stores.sqlite.transaction import Transaction


def every(transaction: Transaction) -> list[PoolView]:
    """P7."""
    found: list[PoolView] = []
    for name, *texts in transaction.execute(POOLS.all).fetchall():
        found += _views(transaction, name, pool_row(*texts))
    return found


def history(transaction: Transaction, pool: str, since: float) -> list[PoolMinute]:
    """P8."""
    found: list[PoolMinute] = []
    for minute, *row in transaction.execute(POOLS.minutes, (pool, int(since // 60))):
        what = remark_of(*row)
        at = minute * 60.0
        found.append(PoolMinute(at=at, calls=what.calls, units=what.units, refusals=what.refusals))
    return found


def forget_unused(transaction: Transaction, limit: int) -> None:
    """Keys with nothing taken and nothing closed; those that stay are looked at again later."""
    ledger, since = transaction.ledger, transaction.now - usage.UNUSED_FOR
    for pool, key in transaction.execute(ACCOUNTS.longest_unseen, (since, limit)).fetchall():
        row, place = ledger.pool(pool), (pool, key)
        at_rest = row is None or usage.at_rest(*ledger.look_at(row, place), ledger.now)
        if at_rest and not ledger.reservations(place):
            transaction.execute(ACCOUNTS.forget, (pool, key))
            ledger.forget(place)
        else:
            transaction.execute(ACCOUNTS.look, (transaction.now, pool, key))


def _views(transaction: Transaction, name: str, row: PoolRow) -> Iterator[PoolView]:
    ledger = transaction.ledger
    settings = row.in_force(transaction.now)
    reserved = dict(transaction.execute(RESERVATIONS.of_pool, (name,)).fetchall())
    stored = {key: account_of(text) for key, text in transaction.execute(ACCOUNTS.of_pool, (name,))}
    for key in sorted({""} | stored.keys()):
        account = ledger.as_of_now(settings, stored.get(key, Account()))
        if not key or reserved.get(key) or _is_busy(settings, account, ledger.now):
            yield _view(name, key, row, account, reserved.get(key, 0), ledger.now)


def _view(  # noqa: PLR0917 - a row, and what it is about
    name: str, key: str, row: PoolRow, account: Account, reservations: int, now: Instant
) -> PoolView:
    settings, known = row.in_force(now.wall), breakers.tidied(account.breaker, now)
    limits = zip(settings.limits, row.declared.limits, strict=True)
    return PoolView(
        name=name,
        key=key or None,
        declared=row.declared,
        override=None if row.override is None or not row.override.holds(now.wall) else row.override,
        limits=tuple(_limit(settings, account, limit, declared.amount, now) for limit, declared in limits),
        closures=known.closures,
        closed=None if account.closed is None or not account.closed.holds(now.wall) else account.closed,
        reservations=reservations,
        foreign=usage.foreign(settings, account, now),
        ramp=breakers.ramp_share(settings, account.breaker, now),
        account=account,
    )


def _is_busy(pool: PoolSettings, account: Account, now: Instant) -> bool:
    return usage.is_closed(account, now) or usage.is_used(pool, account, now)


def _limit(pool: PoolSettings, account: Account, limit: Limit, declared: float, now: Instant) -> LimitView:
    return LimitView(
        name=limit.name,
        unit=limit.unit,
        amount=limit.amount,
        declared=declared,
        used=usage.used(pool, account, limit, now),
        free_in=usage.free_in(pool, account, limit, now),
        learned=learning.in_force(account.learned, limit, now.wall),
    )
