"""Overrides of queues, pools and schedules. An override changes declared settings and has an author, a reason
and an end."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar, cast

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from tidemill.core.validation import is_storable


class CheckedSettings(Protocol):
    """Declared settings with a check. `problem` returns why a field is invalid; None if all fields are
    valid."""

    def problem(self) -> str | None: ...


S = TypeVar("S", bound=CheckedSettings)


class SettingChanges(msgspec.Struct, Generic[S], frozen=True, kw_only=True, omit_defaults=True):
    """New values for some fields of the settings `S`. A field that is UNSET keeps the declared value."""

    def given(self) -> dict[str, Any]:
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not UNSET}

    def with_values(self, values: Mapping[str, Any]) -> Self:
        """Returns changes of the same class that contain exactly these `values`, by field name."""
        return type(self)(**values)

    def join(self, later: Self) -> Self:
        return self.with_values(self.given() | later.given())

    def over(self, settings: S) -> S:
        """Returns `settings` with these changes applied."""
        return cast("S", replace(cast("Any", settings), **self.given()))

    def problem(self, settings: S) -> str | None:
        """Returns why these changes are invalid for `settings`, naming the field; None if they are valid."""
        return self.over(settings).problem()


T = TypeVar("T", bound=SettingChanges[Any])
T_co = TypeVar("T_co", bound=SettingChanges[Any], covariant=True)


class Override(msgspec.Struct, Generic[T_co], frozen=True, kw_only=True):
    """An operator's changes to declared settings.

    - `by`: the author.
    - `since`: the wall time when the override began.
    - `until`: the wall time when the override ends, None for no end."""

    changes: T_co
    by: str
    reason: str | None = None
    since: float
    until: float | None = None

    def holds(self, now: float) -> bool:
        return self.until is None or now < self.until

    def without(self, names: Sequence[str]) -> Self | None:
        """Returns the override without the settings in `names`; None if no change is left. Author, reason and
        times stay."""
        left = {name: value for name, value in self.changes.given().items() if name not in names}
        return replace(self, changes=self.changes.with_values(left)) if left else None

    def problem(self, declared: Any) -> str | None:
        """Returns why the override is invalid for the `declared` settings, naming the field; None if it is
        valid."""
        return problem_with_operator_mark(self.by, self.reason, self.until) or self.changes.problem(declared)


OverrideEdit = Callable[[Override[T] | None, float], Override[T] | None]
"""Takes the stored override and the wall time; returns the override to store."""


def join_override(
    changes: T, *, by: str, reason: str | None, until: float | UnsetType | None
) -> OverrideEdit[T]:
    """Returns a function that adds `changes` to the stored override (Q2, P2). If `until` is UNSET, the end of
    the stored override stays."""

    def edit(before: Override[T] | None, now: float) -> Override[T]:
        held = override_in_force(before, now)
        joined = changes if held is None else held.changes.join(changes)
        kept_end = None if held is None else held.until
        end = kept_end if isinstance(until, UnsetType) else until
        return Override(changes=joined, by=by, reason=reason, since=now, until=end)

    return edit


def clear_override(names: Sequence[str]) -> OverrideEdit[Any]:
    """Returns a function that removes the settings in `names` from the stored override (Q6, P22). If `names`
    is empty, it removes the whole override."""

    def edit(before: Override[Any] | None, _: float) -> Override[Any] | None:
        return before.without(names) if before is not None and names else None

    return edit


def override_in_force(override: Override[T] | None, now: float) -> Override[T] | None:
    """Returns the override; None if there is none or it has ended. `now` is a wall time."""
    return override if override is not None and override.holds(now) else None


def apply_override(declared: S, override: Override[SettingChanges[S]] | None, now: float) -> S:
    """Returns the settings in force at the wall time `now`: the declared ones with the override's changes. An
    override that has ended is ignored."""
    if override is None or not override.holds(now):
        return declared
    return override.changes.over(declared)


def problem_with_operator_mark(by: str | None, reason: str | None, until: float | None) -> str | None:
    """Returns why the author, reason or end of an override, a closure or a pause is invalid; None if all are
    valid. `by` is None for a pause."""
    if by is not None and not by:
        return "by: must say who does it, is empty"
    for field, value in (("by", by), ("reason", reason)):
        if value is not None and not is_storable(value):
            return f"{field}: must be text without NUL characters or lone surrogates"
    if until is not None and not math.isfinite(until):
        return f"until: must be a time, is {until}"
    return None
