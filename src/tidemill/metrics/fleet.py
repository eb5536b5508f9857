"""Numbers of workers, flows, schedules and the store."""

from __future__ import annotations

from tidemill.contract.store import Store
from tidemill.contract.upkeep import StoreFacts
from tidemill.core.courses import Kind
from tidemill.core.graph_state import FlowState
from tidemill.inspect.situation import Situation
from tidemill.metrics import catalogue
from tidemill.metrics.catalogue import valued
from tidemill.schedules.schedule import ScheduleState
from tidemill.tallies.families import Counted, Family


async def of_fleet(store: Store, situation: Situation) -> list[Counted]:
    workers = situation.workers
    flows = await store.course_counts(Kind.FLOW)
    schedules = await store.course_counts(Kind.SCHEDULE)
    return [
        _one(catalogue.WORKERS, len(workers)),
        _one(catalogue.WORKER_SLOTS, sum(worker.concurrency for worker in workers)),
        _one(catalogue.WORKER_HOLDS, sum(worker.holds for worker in workers)),
        valued(catalogue.FLOWS, {state.value: flows.get(state.value, 0) for state in FlowState}),
        valued(catalogue.SCHEDULES, {state.value: schedules.get(state.value, 0) for state in ScheduleState}),
        *_of_store(await store.describe()),
    ]


def _of_store(facts: StoreFacts) -> list[Counted]:
    return [
        _one(catalogue.STORE_BYTES, facts.bytes),
        _one(catalogue.STORE_FREE, facts.free_bytes),
        _one(catalogue.STORE_WARNINGS, len(facts.warnings)),
        valued(catalogue.STORE_INFO, {(facts.kind, facts.engine): 1}),
    ]


def _one(family: Family, value: float | None) -> Counted:
    return valued(family, {} if value is None else {(): value})
