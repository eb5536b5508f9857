"""`app.schedules`: jobs that come of time going by, made, changed and looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from msgspec import UNSET, UnsetType

from tidemill.client.client import Client
from tidemill.client.handle import JobHandle
from tidemill.client.request import JobRequest
from tidemill.client.task import Task
from tidemill.core.courses import Kind
from tidemill.core.states import LIVE
from tidemill.errors import ConfigurationError, EnqueueError, InvalidPayload
from tidemill.schedules import changes
from tidemill.schedules.keeping import Changed, change, change_many, is_so
from tidemill.schedules.making import make, work_of
from tidemill.schedules.schedule import (
    PRESENT,
    Origin,
    Schedule,
    ScheduleState,
    Wanted,
    in_force,
    problem_with_schedule_name,
    readable,
)
from tidemill.schedules.settings import ScheduleChanges, ScheduleOptions, read_changes, read_settings
from tidemill.schedules.views import SchedulePage, ScheduleView, view
from tidemill.times import read_time

if TYPE_CHECKING:
    from tidemill.contract.store import Store

T = TypeVar("T")
What = Task[..., Any] | JobRequest[Any]
TICKS_SHOWN = 5
MOST_AT_ONCE = 1000


class Schedules:
    """Every method answers what the store knows at that moment; programs without an event loop call
    `app.run_sync(app.schedules.upsert(…))`. `what` is a task that needs no arguments, or a job made by
    `task.job(…)`. `declared` are the application's own (`app.schedule`): its workers write them to the store
    when they start."""

    def __init__(self, client: Client, new_id: Callable[[], str]) -> None:
        self._client, self._new_id = client, new_id
        self.declared: dict[str, Wanted] = {}

    def declare(self, name: str, what: What, options: ScheduleOptions) -> None:
        """What `app.schedule` does."""
        if name in self.declared:
            raise ConfigurationError(f"schedule {name!r} is declared twice; give one of them another name")
        self.declared[name] = self._wanted(name, what, options)

    async def upsert(self, name: str, what: What, **options: Unpack[ScheduleOptions]) -> ScheduleView:
        """Make a schedule, or give the one of that name other work or settings:
        `await app.schedules.upsert("feed-7", refresh.job(feed), every=3600)`. Said again as it is, it changes
        nothing; another rule begins now. A pause, an override and the history stay. One that code declares is
        refused."""
        await self.upsert_many([(name, what, options)])
        return await self.get(name)

    async def upsert_many(self, entries: Iterable[tuple[str, What, ScheduleOptions]]) -> None:
        """Many in few calls: `[("feed-7", refresh.job(feed), {"every": 3600}), …]`. Nothing is changed when
        one of them is wrong; a name that code declares is found out where its turn comes."""
        wanted = {name: self._wanted(name, what, options) for name, what, options in entries}

        def put(name: str, before: Schedule | None, now: float) -> Changed | None:
            if is_so(before, wanted[name], Origin.DYNAMIC):
                return None
            return Changed(changes.put(before, name, wanted[name], Origin.DYNAMIC, now))

        await change_many(await self._client.store(), wanted, put)

    async def remove(self, *names: str) -> int:
        """Forget schedules; jobs they made stay. Answers how many there were. One that code declares is made
        again by the next worker that starts: take it out of the code."""
        removed: set[str] = set()

        def drop(name: str, before: Schedule | None, _: float) -> Changed | None:
            removed.discard(name)  # somebody else was quicker when it is asked again
            if before is None or before.removed:
                return None
            removed.add(name)
            return Changed(changes.remove(before))

        await change_many(await self._client.store(), names, drop)
        return len(removed)

    async def pause(
        self, name: str, *, until: float | datetime | None = None, reason: str | None = None
    ) -> ScheduleView:
        """No tick makes a job until `until` or `resume`; they are not caught up."""
        store = await self._client.store()
        end = await _future(store, until)
        return await self._changed(name, partial(changes.pause, until=end, reason=reason))

    async def resume(self, name: str) -> ScheduleView:
        """End a pause. Harmless when there is none."""
        return await self._changed(name, changes.resume)

    async def override(
        self,
        name: str,
        *,
        by: str,
        reason: str | None = None,
        until: float | datetime | UnsetType | None = UNSET,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleView:
        """Put settings over those code declared; no deploy erases them. What is set here joins the override
        that holds. `until` ends all of it; left out, the end it has stays; None takes the end away."""
        put_over = _of(name, lambda: read_changes(options))
        end = until if isinstance(until, UnsetType) else await _future(await self._client.store(), until)
        return await self._changed(
            name, partial(changes.override, changes=put_over, by=by, reason=reason, until=end)
        )

    async def clear_override(self, name: str, *settings: str) -> ScheduleView:
        """The named settings follow the code again; without names, all of them."""
        for setting in settings:
            if setting not in ScheduleChanges.__struct_fields__:
                known = ", ".join(ScheduleChanges.__struct_fields__)
                raise ConfigurationError(f"schedule {name!r}: no setting {setting!r}; there are: {known}")
        return await self._changed(name, partial(changes.clear_override, names=settings))

    async def run_now(self, name: str) -> JobHandle[Any]:
        """Make a job of it now, whether or not it is paused; its ticks stay as they are. While the last job
        is live and `overlap` is "skip", that one is answered (`existing`)."""
        while True:
            last, live = await self._last(name)
            if live:
                return JobHandle(self._client, live, existing=True)
            if (job := await self._run(name, last)) is not None:
                return JobHandle(self._client, job, existing=False)

    async def _run(self, name: str, last: str | None) -> str | None:
        """None when it has made another job than `last` meanwhile, which may be live."""
        job: str | None = None

        def run(_: str, before: Schedule | None, now: float) -> Changed | None:
            nonlocal job
            schedule, job = changes.require(name, before), None
            if schedule.last != last:
                return None
            job = f"{name}@{self._new_id()}"
            return Changed(changes.run(schedule, now, job), (self._made(schedule, job, now),))

        await change(await self._client.store(), name, run)
        return job

    async def get(self, name: str) -> ScheduleView:
        """Raises ScheduleNotFound."""
        store = await self._client.store()
        [course] = await store.courses(Kind.SCHEDULE, [name])
        if course is None or course.state == ScheduleState.REMOVED:
            raise changes.not_found(name)
        if readable(course) is None:
            raise ConfigurationError(f"schedule {name!r}: its record is of a newer version, or damaged")
        return view(course, (await store.read_clock()).wall, TICKS_SHOWN)

    async def list(
        self,
        *,
        states: Sequence[ScheduleState | str] = PRESENT,
        origin: Origin | str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> SchedulePage:
        """Newest first; `cursor` of one page continues with the next."""
        if not 1 <= limit <= MOST_AT_ONCE:
            raise ConfigurationError(f"limit: must lie between 1 and {MOST_AT_ONCE}, is {limit}")
        _check_known("states", states, ScheduleState)
        _check_known("origin", () if origin is None else (origin,), Origin)
        store = await self._client.store()
        page = await store.find_courses(
            Kind.SCHEDULE, name=origin, states=list(states), limit=limit, cursor=cursor
        )
        now = (await store.read_clock()).wall
        known = [course for course in page.courses if readable(course) is not None]
        return SchedulePage(tuple(view(course, now, 1) for course in known), page.cursor)

    async def counts(self) -> dict[str, int]:
        """How many there are in each state."""
        counts = await (await self._client.store()).course_counts(Kind.SCHEDULE)
        return {state.value: counts[state] for state in PRESENT if counts.get(state)}

    async def _changed(self, name: str, alter: Callable[[Schedule, float], Schedule]) -> ScheduleView:
        def altered(_: str, before: Schedule | None, now: float) -> Changed:
            return Changed(alter(changes.require(name, before), now))

        await change(await self._client.store(), name, altered)
        return await self.get(name)

    async def _last(self, name: str) -> tuple[str | None, str | None]:
        """The last job, and again if it is in the way of another."""
        seen = await self.get(name)
        if seen.last_job is None or seen.settings.overlap != "skip":
            return seen.last_job, None
        [job] = await (await self._client.store()).get([seen.last_job])
        return seen.last_job, job.id if job is not None and job.state in LIVE else None

    def _made(self, schedule: Schedule, job: str, now: float) -> Any:
        task = self._client.tasks.get(schedule.work.task)
        if task is None:
            raise ConfigurationError(
                f"task: {schedule.work.task!r} is not known here; run it by a program with its code, or "
                "--app module:app"
            )
        return make(schedule, task, in_force(schedule, now).overlap, job, None)

    def _wanted(self, name: str, what: What, options: Mapping[str, Any]) -> Wanted:
        if problem := problem_with_schedule_name(name):
            raise ConfigurationError(f"schedule: {problem}")
        return _of(name, lambda: Wanted(self._work(what), read_settings(options)))

    def _work(self, what: What) -> Any:
        if isinstance(what, Task):
            try:
                what = what.job()
            except InvalidPayload as error:
                raise ConfigurationError(f"{error}; give its arguments: task.job(…)") from None
        if not isinstance(what, JobRequest):
            raise ConfigurationError(f"task: give a task, or a job made by task.job(…), not {what!r}")
        task = self._client.tasks.get(what.job.task)
        if task is None:
            raise ConfigurationError(f"task: {what.job.task!r} is a task of another application")
        return work_of(what.queue, what.job, task)


def _of(name: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except (ConfigurationError, EnqueueError) as error:
        raise ConfigurationError(f"schedule {name!r}: {error}") from None


def _check_known(field: str, given: Iterable[str], known: type[StrEnum]) -> None:
    for value in given:
        if value not in list(known):
            raise ConfigurationError(f"{field}: must be one of {', '.join(known)}, is {value!r}")


async def _future(store: Store, until: float | datetime | None) -> float | None:
    """When it ends, which must be ahead; None is open."""
    if until is None:
        return None
    end, now = read_time("until", until, ConfigurationError), (await store.read_clock()).wall
    if not end > now:
        raise ConfigurationError(f"until: must be in the future, is {now - end:.0f} s ago; give a later time")
    return end
