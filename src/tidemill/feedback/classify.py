"""Who is asked, in which order, and how several answers become one.

The user's own classifiers know best. Then the adapters, each of which only speaks of what it surely
recognises; then the status and the standard headers; the words of the error come last, and only refine a
status that left the question open.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal

from msgspec.structs import replace

from tidemill.core.refusals import Reason, Refusal
from tidemill.core.units import Units
from tidemill.feedback import anthropic, elevenlabs, gemini, glm, ietf, openai
from tidemill.feedback.facts import Facts
from tidemill.feedback.reading import Known, Reading, Sent, Stated
from tidemill.feedback.sending import UNCERTAIN_STATUSES, sent
from tidemill.feedback.status import by_status
from tidemill.feedback.text import NO_API, by_text
from tidemill.feedback.unpack import members, unpack
from tidemill.feedback.usage import usage_of

Classifier = Callable[[Any], Refusal | Literal[False] | None]
"""Gets the response or exception itself. False: surely no refusal; None: the others are asked."""

_REFUSALS: tuple[Callable[[Facts, float], Known | None], ...] = (
    glm.refusal,
    gemini.refusal,
    anthropic.refusal,
    elevenlabs.refusal,
    openai.refusal,
)
_STATED: tuple[Callable[[Facts, float], tuple[Stated, ...]], ...] = (
    anthropic.stated,
    gemini.stated,
    openai.stated,
    elevenlabs.stated,
    ietf.stated,
)
_REFINED = (None, 403, 429)
"""Statuses whose meaning words may settle: none at all, a 429 that says nothing, and the 403 some use
for a quota."""
_GRAVITY = (
    *(Reason.TOO_LARGE, Reason.CONCURRENCY, Reason.RATE, Reason.UNKNOWN, Reason.OVERLOAD),
    *(Reason.STATED, Reason.DAY_QUOTA, Reason.SPENDING, Reason.FORBIDDEN),
)


def read(source: Any, *, now: float, classifiers: Sequence[Classifier] = ()) -> Reading:
    """Never raises and never waits; `now` is the wall time. An exception group is read member by member."""
    try:
        readings = [_read(one, now, classifiers) for one in members(source)]
    except Exception as error:  # noqa: BLE001 - feedback must not fail a job that is done
        return Reading(problems=(f"reading {type(source).__name__}: {_told(error)}",))
    return readings[0] if len(readings) == 1 else _merged(readings)


def _read(source: Any, now: float, classifiers: Sequence[Classifier]) -> Reading:
    facts = unpack(source)
    known, problems = _asked(source, classifiers)
    if known is None:
        known = Known(_refusal(source, facts, now) if facts.failed else None)
    return Reading(
        usage=usage_of(facts),
        stated=next((found for reader in _STATED if (found := reader(facts, now))), ()),
        refusal=known.refusal,
        sent=_sent(source, facts),
        problems=problems,
    )


def _asked(source: Any, classifiers: Sequence[Classifier]) -> tuple[Known | None, tuple[str, ...]]:
    problems: list[str] = []
    for classifier in classifiers:
        name = getattr(classifier, "__qualname__", repr(classifier))
        try:
            answer: Any = classifier(source)
        except Exception as error:  # noqa: BLE001 - reported, and the others are asked
            problems.append(f"classifier {name} raised {_told(error)}")
            continue
        if isinstance(answer, Refusal):
            return Known(answer), tuple(problems)
        if answer is False:
            return Known(None), tuple(problems)
        if inspect.iscoroutine(answer):
            answer.close()
        if answer is not None:
            problems.append(
                f"classifier {name} must return a Refusal, False or None, not {type(answer).__name__}"
            )
    return None, tuple(problems)


def _refusal(source: Any, facts: Facts, now: float) -> Refusal | None:
    for adapter in _REFUSALS:
        if (known := adapter(facts, now)) is not None:
            return known.refusal
    plain = by_status(facts, now)
    if facts.status not in _REFINED or _own_mistake(source, facts):
        return plain
    said = by_text(facts)
    if said is None:
        return plain
    if plain is None or plain.reason is Reason.FORBIDDEN:
        return said
    # A day or a longer story goes before the hint, which stays as a floor.
    after = said.retry_after if plain.retry_after is None else plain.retry_after
    if said.reason is Reason.UNKNOWN or (said.reason is Reason.RATE and plain.reason is Reason.STATED):
        return replace(plain, retry_after=after, then=said.then if plain.reason is Reason.UNKNOWN else None)
    return replace(said, retry_after=after)


def _own_mistake(source: Any, facts: Facts) -> bool:
    builtin = type(source).__module__ == "builtins"
    return facts.status is None and builtin and isinstance(source, NO_API)


def _sent(source: Any, facts: Facts) -> Sent:
    if facts.status is not None:
        return "unknown" if facts.status in UNCERTAIN_STATUSES else "answered"
    if isinstance(source, BaseException):
        return sent(source)
    return "answered" if facts.body is not None or facts.headers else "unknown"


def _merged(readings: list[Reading]) -> Reading:
    """Of several refusals the longest wait wins, of several states the lowest is believed later."""
    refusals = [one.refusal for one in readings if one.refusal is not None]
    told: set[Sent] = {one.sent for one in readings}
    return Reading(
        usage=_summed([one.usage for one in readings if one.usage]),
        stated=tuple(stated for one in readings for stated in one.stated),
        refusal=max(refusals, key=_gravity, default=None),
        sent=told.pop() if len(told) == 1 else "unknown",
        problems=tuple(problem for one in readings for problem in one.problems),
    )


def _gravity(refusal: Refusal) -> tuple[int, float, float]:
    return _GRAVITY.index(refusal.reason), refusal.resets_at or 0.0, refusal.retry_after or 0.0


def _summed(usages: list[Units]) -> Units | None:
    units = {unit for usage in usages for unit in usage}
    return {unit: sum(usage.get(unit, 0.0) for usage in usages) for unit in sorted(units)} or None


def _told(error: Exception) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:500]
    except Exception:  # noqa: BLE001 - __str__ is the user's
        return type(error).__name__
