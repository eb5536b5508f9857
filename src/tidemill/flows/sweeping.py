"""Advances every flow that waits for it, or those somebody names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from tidemill.contract.store import Store
from tidemill.core.courses import ENDS_AT_ONCE, Advance, Course, Kind, Stirred
from tidemill.errors import StoreError
from tidemill.flows.advancing import UnknownTask, advance_of, cancel_live, is_to_be_cancelled
from tidemill.tasks.definition import TaskDefinition

FLOWS_AT_ONCE = 100


class Swept(msgspec.Struct):
    """`advanced` are flows as they were and as they are now. `left` wait for somebody who knows a task of
    theirs, by the task. `more`: there was more than went at once, or somebody else was quicker."""

    advanced: list[tuple[Course, Course]] = []
    left: dict[str, str] = {}
    more: bool = False


async def sweep(
    store: Store,
    tasks: Mapping[str, TaskDefinition],
    ids: Sequence[str] | None = None,
    *,
    limit: int = FLOWS_AT_ONCE,
    given_up: Collection[str] = (),
) -> Swept:
    """`given_up` are flows in which a task nobody knows has been waited for long enough. One flow that cannot
    be advanced stops no other; what it raised is raised in the end."""
    swept, broken = Swept(), None
    agenda = await store.agenda(Kind.FLOW, limit, ids)
    pending: list[tuple[Course, Advance]] = []
    for stirred in agenda.stirred:
        flow = stirred.course.id
        try:
            current = await _without_live(store, stirred)
            advance = await advance_of(store, tasks, current, strangers_fail=flow in given_up)
        except UnknownTask as error:
            swept.left[flow] = str(error)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - told in the end
            broken = error
        else:
            pending += [(current.course, advance)] if advance is not None else []
        if sum(len(one.jobs) for _, one in pending) >= ENDS_AT_ONCE:
            await _send(store, pending, swept)
            pending = []
    await _send(store, pending, swept)
    swept.more |= len(agenda.stirred) == limit and bool(swept.advanced)
    if broken is not None:
        raise broken
    return swept


async def _without_live(store: Store, stirred: Stirred) -> Stirred:
    """Of a flow that was stopped, all jobs end first: then there is more on its agenda."""
    if (stopped := is_to_be_cancelled(stirred)) is None:
        return stirred
    await cancel_live(store, stirred.course.id, stopped.reason)
    return next(iter((await store.agenda(Kind.FLOW, 1, [stirred.course.id])).stirred), stirred)


async def _send(store: Store, pending: Sequence[tuple[Course, Advance]], swept: Swept) -> None:
    if not pending:
        return
    answers = await store.advance([advance for _, advance in pending])
    for (before, advance), answer in zip(pending, answers, strict=True):
        swept.more |= advance.again or not answer.done or len(advance.taken) >= ENDS_AT_ONCE
        if answer.done and answer.course is not None:
            swept.advanced.append((before, answer.course))
