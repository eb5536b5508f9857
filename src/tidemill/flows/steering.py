"""Cancels and retries a flow, whoever asks for it. What is left half done by one who dies is finished by the
next who looks at the agenda."""

from __future__ import annotations

from msgspec.structs import replace

from tidemill.contract.store import Store
from tidemill.core.changes import RetryNow
from tidemill.core.courses import Advance, Advanced, Course, Kind, Next
from tidemill.core.filters import Filter
from tidemill.core.flow_jobs import job_id
from tidemill.core.graph import Graph, Stopped, Why, decode
from tidemill.core.graph_ends import JobEnd, ended
from tidemill.core.graph_state import ENDED, FlowState, to_retry
from tidemill.core.states import State
from tidemill.errors import FlowNotFound, JobNotFound, StoreUnavailable
from tidemill.flows.advancing import next_of, to_be_cleared
from tidemill.flows.doubts import Tell
from tidemill.flows.results import AT_ONCE as LOOKED_AT_ONCE
from tidemill.flows.sweeping import sweep

AT_ONCE = 500


async def find_flow(store: Store, flow: str) -> Course:
    [course] = await store.courses(Kind.FLOW, [flow])
    if course is None:
        raise FlowNotFound(
            f"there is no flow {flow!r}: the id is wrong, or it ended and was pruned; keep ended flows "
            "longer with app.flow(…, keep=…)"
        )
    return course


async def cancel(store: Store, flow: str, reason: str, tell: Tell) -> bool:
    """I19: the flow first, so that nothing new is made of it, then its jobs. False: it had ended already."""
    while True:
        course = await find_flow(store, flow)
        if course.state in ENDED:
            if (await sweep(store, {}, [flow], tell=tell)).advanced:  # a job of it may have been brought back
                continue
            return False
        graph = replace(decode(course.record), stopped=Stopped(Why.CANCELLED, reason))
        if await _become(store, course, graph, tell):
            await sweep(store, {}, [flow], tell=tell)
            return True


async def retry(store: Store, flow: str, tell: Tell) -> bool:
    """What failed or was cancelled goes again, and the flow goes on from there. False: it has not failed.

    The flow first: until it is taken up, what its jobs do is none of its business. If its jobs are not
    brought back after all, whoever looks at them next finds them as they were, and it has failed again. Who
    looks too early finds the same, so in the end somebody looks who knows that they are back."""
    while True:
        course = await find_flow(store, flow)
        if course.state not in {FlowState.FAILED, FlowState.CANCELLED}:
            return False
        if to_be_cleared(course) is not None and await _clear(store, flow, tell):
            continue
        before = decode(course.record)
        again = list(to_retry(before))
        ids = [job_id(flow, *one) for one in again]
        await _check_all_there(store, flow, ids)
        graph = ended(replace(before, stopped=None), [JobEnd(*one, State.READY) for one in again])
        if await _become(store, course, graph, tell):
            await _bring_back(store, ids)
            await sweep(store, {}, [flow], tell=tell)
            return True


async def _clear(store: Store, flow: str, tell: Tell) -> bool:
    """Who cancels what was live before must not meet what is live again. False: there is no more to it."""
    swept = await sweep(store, {}, [flow], tell=tell)
    return swept.advanced > 0 or swept.more


async def _check_all_there(store: Store, flow: str, ids: list[str]) -> None:
    for start in range(0, len(ids), LOOKED_AT_ONCE):
        some = ids[start : start + LOOKED_AT_ONCE]
        for id_, job in zip(some, await store.get(some), strict=True):
            if job is None:
                raise JobNotFound(
                    f"flow {flow!r} cannot be retried: somebody deleted its job {id_!r}, and no job is made "
                    "twice; send the flow again, with another key"
                )


async def _become(store: Store, course: Course, graph: Graph, tell: Tell) -> bool:
    then = next_of(course.name, graph, course.due)
    advance = Advance(kind=Kind.FLOW, id=course.id, expected=course.revision, next=then, again=True)
    try:
        [answer] = await store.advance([advance])
    except StoreUnavailable:
        answer = await _look_whether(store, course, then)
    if answer.done and answer.course is not None:
        tell(course, answer.course)
    return answer.done


async def _look_whether(store: Store, before: Course, then: Next) -> Advanced:
    """The answer was lost; nobody else writes the same at the same time."""
    course = await find_flow(store, before.id)
    return Advanced(course.revision == before.revision + 1 and course.record == then.record, course)


async def _bring_back(store: Store, ids: list[str]) -> None:
    """One that somebody else brought back and that is done by now is not repeated."""
    states = (State.FAILED, State.CANCELLED)
    for start in range(0, len(ids), AT_ONCE):
        some = tuple(ids[start : start + AT_ONCE])
        await store.amend(Filter(ids=some, states=states), RetryNow(), AT_ONCE)
