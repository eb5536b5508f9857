"""Advances every flow that waits for it, or those somebody names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from tidemill.contract.store import Store
from tidemill.core.courses import ENDS_AT_ONCE, Advance, Course, Kind, Stirred
from tidemill.errors import StoreError
from tidemill.flows.advancing import UnknownTask, advance_of, cancel_live, to_be_cleared
from tidemill.flows.doubts import Doubts, Tell
from tidemill.tasks.definition import TaskDefinition

FLOWS_AT_ONCE = 100
WEIGHT_AT_ONCE = 2 * ENDS_AT_ONCE
"""Jobs made and ends taken by one call: as much as a single flow may ask for."""


class Swept(msgspec.Struct):
    """`advanced` so many. `left` wait for somebody who knows a task of theirs, by the task, and `broken` are
    those that raised something else. `more`: there was more than went at once, or somebody else was
    quicker. `next_due` is in how many seconds the next flow wants to be looked at."""

    advanced: int = 0
    left: dict[str, str] = {}
    broken: dict[str, Exception] = {}
    more: bool = False
    next_due: float | None = None


Also = Callable[[Course, Advance], Awaitable[Advance]]
"""From a flow as it is and what becomes of it to the same with other jobs that come of it."""


def _nobody(before: Course, after: Course) -> None:
    """There is nobody to be told."""


async def sweep(
    store: Store,
    tasks: Mapping[str, TaskDefinition],
    ids: Sequence[str] | None = None,
    *,
    limit: int = FLOWS_AT_ONCE,
    given_up: Collection[str] = (),
    doubts: Doubts | None = None,
    tell: Tell = _nobody,
    also: Also | None = None,
) -> Swept:
    """`given_up` are flows in which a task nobody knows has been waited for long enough. One flow that cannot
    be advanced stops no other, and `tell` hears of each at once, whatever becomes of the next; `also` adds
    jobs that come of it. `doubts` has what was sent and not answered when this raises."""
    doubts = Doubts() if doubts is None else doubts
    agenda = await store.agenda(Kind.FLOW, limit, ids)
    swept = Swept(next_due=agenda.next_due)
    pending: list[tuple[Course, Advance]] = []
    for stirred in agenda.stirred:
        flow = stirred.course.id
        try:
            current = await _without_live(store, stirred)
            advance = await advance_of(store, tasks, current, doubts, strangers_fail=flow in given_up)
        except UnknownTask as error:
            swept.left[flow] = str(error)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - the others go on
            swept.broken[flow] = error
        else:
            if advance is None:
                continue
            if also is not None:
                advance = await also(current.course, advance)
            if sum(_weight(one) for _, one in pending) + _weight(advance) > WEIGHT_AT_ONCE:
                await _send(store, pending, swept, doubts, tell)
                pending = []
            pending.append((current.course, advance))
    await _send(store, pending, swept, doubts, tell)
    swept.more |= len(agenda.stirred) == limit and swept.advanced > 0
    return swept


def _weight(advance: Advance) -> int:
    return len(advance.jobs) + len(advance.taken)


async def _without_live(store: Store, stirred: Stirred) -> Stirred:
    """Of a flow that was stopped, all jobs end first: whatever was brought back before that is live no more.
    It stays the revision it was, so that of one that was taken up and stopped again nothing is said."""
    if (stopped := to_be_cleared(stirred.course)) is None:
        return stirred
    if not await cancel_live(store, stirred.course, stopped.reason):
        return stirred
    agenda = await store.agenda(Kind.FLOW, 1, [stirred.course.id])
    return replace(stirred, ends=agenda.stirred[0].ends) if agenda.stirred else stirred


async def _send(
    store: Store, pending: Sequence[tuple[Course, Advance]], swept: Swept, doubts: Doubts, tell: Tell
) -> None:
    if not pending:
        return
    doubts.sending(pending)
    answers = await store.advance([advance for _, advance in pending])
    for (before, advance), answer in zip(pending, answers, strict=True):
        swept.more |= advance.again or not answer.done or len(advance.taken) >= ENDS_AT_ONCE
        if doubts.answered(before, answer) and answer.course is not None:
            swept.advanced += 1
            tell(before, answer.course)
