"""The queries of a page, and jobs to query; tests count what each store reads."""

from __future__ import annotations

from tidemill.contract.store import Store
from tidemill.core.filters import Filter
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.core.operator_changes import ArchiveJobs
from tidemill.core.states import State

LIMIT, SCAN_LIMIT = 20, 100
JOBS_PER_INSERT = 1000

PAGE_FILTERS = {
    "all": Filter(),
    "a queue": Filter(queue="busy"),
    "a queue with old jobs only": Filter(queue="old"),
    "failed": Filter(states=(State.FAILED,)),
    "ready": Filter(states=(State.READY,)),
    "a task nobody has": Filter(task="nobody's"),
    "a key nobody has": Filter(key="nobody's", states=(State.READY,)),
    "a tag nobody has": Filter(tag="nobody's"),
    "text nobody has": Filter(text="Nobody's"),
    "text no failed job has": Filter(text="nobody's", states=(State.FAILED,)),
    "a field nobody has": Filter(fields=(("host", "nobody's"),)),
    "created long ago": Filter(until=1.0),
    "finished long ago": Filter(until=1.0, time="finished"),
    "an id's beginning": Filter(id_prefix="old1"),
    "a beginning all ids have": Filter(id_prefix=""),
}


async def fill(store: Store, jobs: int) -> None:
    """Adds as many jobs to a queue whose jobs come last, and a few failed ones."""
    for queue in ("old", "busy"):
        for start in range(0, jobs, JOBS_PER_INSERT):
            await store.insert(
                [JobGroup(queue, tuple(_job(queue, start + n) for n in range(JOBS_PER_INSERT)))]
            )
    await store.amend(Filter(id_prefix="old10"), ArchiveJobs(), LIMIT + 10)


def _job(queue: str, number: int) -> NewJob:
    return NewJob(id=f"{queue}{number}", task="t", payload=b'{"host": "a.example", "text": "some"}')
