"""The override of one key of a pool. It is stored in the key's account (P23)."""

from __future__ import annotations

from msgspec.structs import replace

from tidemill.core.accounts import Account
from tidemill.core.overrides import Override, apply_override
from tidemill.core.pools import LimitChanges, PoolSettings


def apply_key_override(pool: PoolSettings, account: Account, wall: float) -> PoolSettings:
    """Returns the settings in force for the key of this account (P23). `pool` has the settings of the whole
    pool, including its override. `wall` is the wall time."""
    return pool if account.override is None else apply_override(pool, account.override, wall)


def set_key_override(account: Account, override: Override[LimitChanges] | None) -> Account:
    """Returns the account with another override of its key; None removes the override (P23). What was learned
    about the limits in the override is forgotten."""
    named = {} if override is None else override.changes.amounts
    learned = {name: learned for name, learned in account.learned.items() if name not in named}
    suspects = {name: since for name, since in account.suspects.items() if name not in named}
    spacings = {name: spacing for name, spacing in account.spacings.items() if name not in named}
    state = replace(account.state, revision=account.state.revision + 1)
    return replace(
        account, override=override, learned=learned, suspects=suspects, spacings=spacings, state=state
    )


def end_key_override(account: Account, wall: float) -> Account:
    """Returns the account without its override if the override has ended at the wall time `wall`. Otherwise
    returns the same account."""
    if account.override is None or account.override.holds(wall):
        return account
    # Setting the wall clock back must not restore the override.
    return set_key_override(account, None)


def first_override_end(override: Override[LimitChanges] | None, account: Account) -> float | None:
    """Returns the wall time when the first of two overrides ends: the pool's `override`, or the override of
    the account's key. Returns None if neither has an end."""
    ends = [known.until for known in (override, account.override) if known is not None]
    return min((end for end in ends if end is not None), default=None)
