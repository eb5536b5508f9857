"""Learned spacings: a provider that allows fewer calls than one per declared window.

A limit of one request per window cannot be lowered further. If the provider refuses calls at this rate, the
account learns a spacing: a time between two calls that is longer than the window.

A new spacing is a trial. Each refusal doubles it, and each success halves it, until it is as short as the
window and dropped. If a refusal follows a success, the longer spacing is confirmed. If the provider states
when to call again, the confirmed spacing is as long as the stated time.

A confirmed spacing stays for hours. At most once an hour, a success shortens it by a quarter. If the provider
refuses the shorter spacing, the longer one returns, and the next test comes after twice as many hours. Two
refusals within a short time double a confirmed spacing. Three refusals without a success make it a trial
again."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from tidemill.core.feedback import Reason, Refusal
from tidemill.core.limits import Limit, SpacedLimit, window_seconds
from tidemill.core.pools import PoolSettings
from tidemill.core.windows import Instant
from tidemill.core.windows.base import TOLERANCE

MAX_SPACING_SECONDS = 86_400.0
MAX_TRIAL_SECONDS = 600.0
"""The longest trial. After an outage, the key is at full speed again within twice this time."""
SPACING_LIFETIME_SECONDS = 7 * 86_400.0
"""Seconds without a change after which a spacing is forgotten."""
TEST_SECONDS, MAX_TEST_WAIT_HOURS = 3600.0, 24.0
"""Seconds between two tests of a shorter spacing, and the longest wait after tests that failed."""
TEST_SHARE = 0.75
"""The share of a confirmed spacing that is tested."""
UNRELATED_AFTER_SPACINGS = 3.0
"""Refusals of a confirmed spacing that are further apart than this have different causes."""
REFUSALS_OF_OUTAGE = 3
"""The number of refusals without a success after which an outage is likely."""
HINT_MARGIN_SECONDS = 1.0
"""Providers round the time that they state to whole seconds."""
MIN_HINT_SHARE = 0.25
"""A hint below this share of the spacing is not trusted."""
SPACED_REASONS = frozenset({Reason.RATE, Reason.UNKNOWN})


class LearnedSpacing(msgspec.Struct, frozen=True, kw_only=True):
    """The time between two calls that a provider seems to require. Times are wall times.

    - `seconds`: the spacing.
    - `window`: the declared window in seconds.
    - `below`: the amount of the limit that code or an operator set.
    - `since`: when the spacing was learned.
    - `changed`: when the spacing last became longer or shorter.
    - `refused`: when the last refusal came, or the later time that the refusal asked to wait for.
    - `accepted`: when the last successful call was claimed, None if none succeeded.
    - `refusals`: the number of refusals since the last success.
    - `confirmed`: False for a trial, which successes shorten at once.
    - `eased`: True if successes have shortened the spacing since the last refusal.
    - `test_hours`: after how many hours a shorter spacing is tested."""

    seconds: float
    window: float
    below: float
    since: float
    changed: float
    refused: float
    accepted: float | None = None
    refusals: int = 1
    confirmed: bool = False
    eased: bool = False
    test_hours: float = 1.0

    def holds(self, limit: Limit, wall: float) -> bool:
        """True if the spacing applies to `limit` at the wall time `wall`. A spacing that was learned for
        another amount does not apply."""
        return self.below == limit.amount and wall < self.changed + SPACING_LIFETIME_SECONDS

    @property
    def is_longer(self) -> bool:
        """True if the spacing slows calls down. A trial that is as long as the window does not."""
        return self.seconds > self.window + TOLERANCE


LearnedSpacings = dict[str, LearnedSpacing]
"""By limit name."""


def apply_spacings(
    pool: PoolSettings, limited: PoolSettings, spacings: Mapping[str, LearnedSpacing], wall: float
) -> PoolSettings:
    """Returns the settings `limited` with learned spacings at the wall time `wall`.

    - `pool`: the settings with the amounts that code or an operator set.
    - `limited`: the settings with the learned amounts."""
    if not spacings:
        return limited
    limits = tuple(
        _apply_spacing(limit, spacing_in_force(spacings, by_people, wall))
        for limit, by_people in zip(limited.limits, pool.limits, strict=True)
    )
    return limited if limits == limited.limits else replace(limited, limits=limits)


def spacing_in_force(
    spacings: Mapping[str, LearnedSpacing], limit: Limit, wall: float
) -> LearnedSpacing | None:
    """Returns the spacing that slows down the calls of `limit`; None if there is none."""
    spacing = spacings.get(limit.name)
    return spacing if spacing is not None and spacing.is_longer and spacing.holds(limit, wall) else None


def learn_from_refusal(  # noqa: PLR0917 - a refusal and its context
    pool: PoolSettings,
    limited: PoolSettings,
    spacings: LearnedSpacings,
    refusal: Refusal,
    claimed: float | None,
    now: Instant,
) -> LearnedSpacings:
    """Returns the spacings after a refusal.

    - `pool`: the settings with the amounts that code or an operator set.
    - `limited`: the settings with the learned amounts.
    - `claimed`: the boot-clock time when the refused call was claimed, None if unknown."""
    if refusal.reason not in SPACED_REASONS or refusal.unit not in (None, "requests"):
        return spacings
    pairs = zip(pool.limits, limited.limits, strict=True)
    return spacings | {
        limit.name: _after_refusal(pool, by_people, spacings.get(limit.name), refusal, claimed, now)
        for by_people, limit in pairs
        if _is_one_request(limit)
    }


def learn_from_success(
    pool: PoolSettings, spacings: LearnedSpacings, claimed: float | None, now: Instant
) -> LearnedSpacings:
    """Returns the spacings after a successful call, which was claimed at the boot-clock time `claimed`."""
    accepted = _claim_time(claimed, now)
    after: dict[str, LearnedSpacing | None] = {
        limit.name: _after_success(replace(spacings[limit.name], accepted=accepted, refusals=0), now.wall)
        for limit in pool.limits
        if limit.name in spacings
        and spacings[limit.name].holds(limit, now.wall)
        and not _is_older(spacings[limit.name], claimed, now)
    }
    if all(spacing == spacings[name] for name, spacing in after.items()):
        return spacings
    return {name: spacing for name, spacing in (spacings | after).items() if spacing is not None}


def _is_one_request(limit: Limit) -> bool:
    """True if the limit admits one request per window in seconds, so that its amount cannot be lowered."""
    return limit.unit == "requests" and isinstance(limit.per, float) and limit.amount <= 1.0 + TOLERANCE


def _after_refusal(  # noqa: PLR0917 - a refusal and its context
    pool: PoolSettings,
    limit: Limit,
    known: LearnedSpacing | None,
    refusal: Refusal,
    claimed: float | None,
    now: Instant,
) -> LearnedSpacing:
    hint = _hinted_seconds(refusal, now.wall)
    if known is None or not known.holds(limit, now.wall):
        return _first_trial(limit, hint, now.wall)
    asked = now.wall + (hint or 0.0)
    if _is_older(known, claimed, now):
        return replace(known, refused=max(known.refused, asked))
    refused = replace(known, refused=asked, refusals=known.refusals + 1, eased=False)
    if known.confirmed:
        return _confirmed_after_refusal(pool, known, refused, hint, now.wall)
    longer = _longer_seconds(known, hint, now.wall)
    if known.eased:
        return _confirm(refused, longer, 1.0, now.wall)
    return replace(refused, seconds=_trial_seconds(longer, known.seconds), changed=now.wall)


def _first_trial(limit: Limit, hint: float | None, wall: float) -> LearnedSpacing:
    """Returns the trial after a first refusal. `hint` is the wait that the provider stated, None if it stated
    none."""
    window = window_seconds(limit)
    return LearnedSpacing(
        seconds=_trial_seconds(2 * window, window) if hint is None else window,
        window=window,
        below=limit.amount,
        since=wall,
        changed=wall,
        refused=wall + (hint or 0.0),
    )


def _confirmed_after_refusal(
    pool: PoolSettings, known: LearnedSpacing, refused: LearnedSpacing, hint: float | None, wall: float
) -> LearnedSpacing:
    """Returns a confirmed spacing after a refusal. `known` is the spacing before the refusal. `refused` is
    the same spacing with the refusal counted."""
    if known.eased:
        hours = min(MAX_TEST_WAIT_HOURS, 2 * known.test_hours)
        return _confirm(refused, known.seconds / TEST_SHARE, hours, wall)
    if wall - known.refused > UNRELATED_AFTER_SPACINGS * (known.seconds + pool.guards.jitter):
        return refused
    longer, confirmed = _longer_seconds(known, hint, wall), refused.refusals < REFUSALS_OF_OUTAGE
    seconds = min(longer, MAX_SPACING_SECONDS) if confirmed else _trial_seconds(longer, known.seconds)
    return replace(refused, seconds=seconds, changed=wall, confirmed=confirmed)


def _longer_seconds(known: LearnedSpacing, hint: float | None, wall: float) -> float:
    """Returns a spacing that is longer than `known`: twice as long, or as long as the provider's `hint`
    requires."""
    # Some providers always state one second, so a short hint is ignored.
    if hint is None or hint < MIN_HINT_SHARE * known.seconds or known.refusals or known.accepted is None:
        return 2 * known.seconds
    return max(wall + hint - known.accepted + HINT_MARGIN_SECONDS, known.seconds)


def _confirm(refused: LearnedSpacing, seconds: float, test_hours: float, wall: float) -> LearnedSpacing:
    return replace(
        refused,
        seconds=min(seconds, MAX_SPACING_SECONDS),
        since=wall,
        changed=wall,
        refusals=1,
        confirmed=True,
        test_hours=test_hours,
    )


def _after_success(known: LearnedSpacing, wall: float) -> LearnedSpacing | None:
    """Returns the spacing after a success; None if it is dropped."""
    if not known.confirmed:
        if known.eased and not known.is_longer:
            return None
        return replace(known, seconds=max(known.window, known.seconds / 2), eased=True, changed=wall)
    if wall - known.changed < TEST_SECONDS * known.test_hours:
        return known
    seconds = TEST_SHARE * known.seconds
    if seconds <= known.window:
        return None
    return replace(known, seconds=seconds, eased=True, changed=wall)


def _is_older(known: LearnedSpacing, claimed: float | None, now: Instant) -> bool:
    """True if the call was claimed before the spacing last changed, so the call says nothing about the
    spacing."""
    # All calls in flight are refused together: their refusals count as one.
    if claimed is None:
        return now.wall - known.changed < known.seconds / 2
    return _claim_time(claimed, now) < known.changed - TOLERANCE


def _claim_time(claimed: float | None, now: Instant) -> float:
    """Returns the wall time of the claim at the boot-clock time `claimed`; the present time if unknown."""
    return now.wall if claimed is None else now.wall - (now.boot - claimed)


def _hinted_seconds(refusal: Refusal, wall: float) -> float | None:
    """Returns the seconds that the provider asks to wait; None if it does not say."""
    waits = [] if refusal.retry_after is None else [refusal.retry_after]
    if refusal.resets_at is not None and refusal.resets_at > wall:
        waits.append(refusal.resets_at - wall)
    return max(waits, default=None)


def _trial_seconds(seconds: float, before: float) -> float:
    """Returns the length of a trial. It is at most MAX_TRIAL_SECONDS, or as long as `before`."""
    return min(seconds, max(before, MAX_TRIAL_SECONDS))


def _apply_spacing(limit: Limit, spacing: LearnedSpacing | None) -> Limit:
    if spacing is None or not isinstance(limit.per, float):
        return limit
    return SpacedLimit(
        limit.unit, min(1.0, limit.amount), limit.per, limit.shape, limit.charge, spacing.seconds
    )
