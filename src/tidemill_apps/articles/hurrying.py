"""A request for an article that waits, while the queue is full: its job is there, and only made more urgent.

A full queue refuses requests by their number, before it looks whom they are for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidemill import Filter, Job, State, Tidemill
from tidemill_apps.articles.posts import Posts, Status

PAGE = 100
WAITS = (State.READY, State.SCHEDULED, State.WAITING)


async def waiting_for(app: Tidemill, posts: Posts, ids: Iterable[int]) -> dict[int, Job]:
    """The jobs, by their articles, of those whose job waits."""
    found: dict[int, Job] = {}
    wanted = list(ids)
    for start in range(0, len(wanted), PAGE):
        rows = await posts.many(wanted[start : start + PAGE])
        named = {row.id: row.rag_job for row in rows if row.rag_status == Status.PENDING and row.rag_job}
        found |= await waiting(app, named)
    return found


async def waiting(app: Tidemill, named: Mapping[int, str]) -> dict[int, Job]:
    """Those of the jobs, by their articles, that wait."""
    wanted = Filter(ids=tuple(named.values()), states=WAITS)
    jobs = {job.id: job async for job in app.inspect.each(wanted)} if named else {}
    return {post_id: jobs[job] for post_id, job in named.items() if job in jobs}


async def hurry(app: Tidemill, jobs: Iterable[Job], priority: int) -> None:
    """They keep their place and take the more urgent priority; what waits for its next attempt begins now."""
    meant = list(jobs)
    if later := tuple(job.id for job in meant if job.priority > priority):
        await app.inspect.reprioritise(Filter(ids=later, states=WAITS), priority)
    if due := tuple(job.id for job in meant if job.state is State.SCHEDULED):
        await app.inspect.run(Filter(ids=due, states=(State.SCHEDULED,)))
