"""Songs whose job is gone are set right: at the start of every worker, whenever a job ends badly, and every
30 seconds for whatever nobody told of.

A song says which job has it. A job that waits or runs keeps its songs. One that failed takes them with it;
one that was cancelled, is done or is not there any more gives them back.
"""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from tidemill import Filter, Job, State, Tidemill
from tidemill_apps.music.library import Library
from tidemill_apps.music.limits import PIPELINE_QUEUE

log = structlog.get_logger("tidemill_apps.music")

LOOK_EVERY = 30.0
AT_ONCE = 200
LIVE = (State.SCHEDULED, State.READY, State.WAITING, State.RUNNING)


class Sweeper:
    def __init__(self, app: Tidemill, library: Library, *, enqueues: str, again: str) -> None:
        """The tasks that mark songs and then send their jobs. `again` waits most of the time."""
        self._app, self._library, self._enqueues, self._again = app, library, enqueues, again

    async def sweep(self) -> int:
        """Answers how many songs were set right. The order matters: songs are read, then it is asked whether
        somebody is about to send jobs, then jobs are looked up. A job that is not there then never comes."""
        held = await self._library.left_processing()
        sending = await self._is_sending()
        jobs = await self._jobs(job for job in held if job is not None)
        over: list[str | None] = []
        right = 0
        for id_ in held:
            job = None if id_ is None else jobs.get(id_)
            if job is not None and job.state is State.FAILED:
                right += await self._fail(job)
            elif id_ is None or (job is None and not sending) or (job is not None and job.state not in LIVE):
                over.append(id_)
        if over:
            right += await self._library.release(*over)
        if right:
            log.info("songs_set_right", songs=right)
        return right

    async def retry_failed(self) -> tuple[int, int]:
        """For a person who has retried their jobs: songs that failed wait again, for their job if it comes
        again, and for the next start if it is no more. How many of each. One that has failed again meanwhile
        keeps its songs, and with them what it has paid for."""
        jobs = await self._jobs(await self._library.failed_jobs())
        coming = await self._library.await_jobs([id_ for id_, job in jobs.items() if job.state in LIVE])
        return coming, await self._library.retry_failed(
            but=[id_ for id_, job in jobs.items() if job.state in (*LIVE, State.FAILED)]
        )

    async def _fail(self, job: Job) -> int:
        tried = job.reason == "failed" and job.attempts > 1
        why = f"tried {job.attempts} times" if tried else job.reason or "its job failed"
        said = "" if job.error is None else f": {job.error.message}"
        return await self._library.fail(job.id, f"{why}{said}")

    async def _is_sending(self) -> bool:
        own = (await self._app.inspect.find(Filter(queue=PIPELINE_QUEUE, states=LIVE), limit=10)).jobs
        running = (job.task for job in own if job.state is State.RUNNING)
        return self._again in running or self._enqueues in (job.task for job in own)

    async def _jobs(self, ids: Iterable[str]) -> dict[str, Job]:
        listed = list(ids)
        found: dict[str, Job] = {}
        for start in range(0, len(listed), AT_ONCE):
            page = await self._app.inspect.find(
                Filter(ids=tuple(listed[start : start + AT_ONCE])), limit=AT_ONCE, looks=None
            )
            found |= {job.id: job for job in page.jobs}
        return found
