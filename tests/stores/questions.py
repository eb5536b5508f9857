"""What a page asks of a store, and jobs to ask about: a test counts what each store reads for it."""

from __future__ import annotations

from tidemill.contract.store import Store
from tidemill.core.changes import Archive
from tidemill.core.filters import Filter
from tidemill.core.job import Group, NewJob
from tidemill.core.states import State

LIMIT, LOOKS = 20, 100
AT_ONCE = 1000

SEARCHES = {
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
    """As many again in a queue whose jobs lie below all others, and a few that failed."""
    for queue in ("old", "busy"):
        for start in range(0, jobs, AT_ONCE):
            await store.insert([Group(queue, tuple(_job(queue, start + n) for n in range(AT_ONCE)))])
    await store.amend(Filter(id_prefix="old10"), Archive(), LIMIT + 10)


def _job(queue: str, number: int) -> NewJob:
    return NewJob(id=f"{queue}{number}", task="t", payload=b'{"host": "a.example", "text": "some"}')
