"""`app.schedules`: creates, changes and lists schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar, Unpack

from msgspec import UNSET, UnsetType

from tidemill.client.client import Client
from tidemill.client.job_handle import JobHandle
from tidemill.client.request import JobRequest
from tidemill.client.task import Task
from tidemill.core.documents import DocumentKind
from tidemill.core.overrides import clear_override, join_override
from tidemill.core.states import LIVE
from tidemill.errors import ConfigurationError, EnqueueError, InvalidPayload
from tidemill.schedules import changes
from tidemill.schedules.changes import ScheduleWrite, change_schedule, change_schedules, is_unchanged
from tidemill.schedules.due_ticks import build_tick_job, make_schedule_work
from tidemill.schedules.schedule import (
    VISIBLE_STATES,
    Schedule,
    ScheduleOrigin,
    ScheduleSpec,
    ScheduleState,
    problem_with_schedule_name,
    settings_in_force,
    try_decode_schedule,
)
from tidemill.schedules.settings import (
    ScheduleChanges,
    ScheduleOptions,
    ScheduleUpsertOptions,
    read_next_at,
    read_schedule_changes,
    read_schedule_settings,
)
from tidemill.schedules.views import SchedulePage, ScheduleView, make_schedule_view
from tidemill.times import NoEnd, parse_end

T = TypeVar("T")
ScheduledWork = Task[..., Any] | JobRequest[Any]
NEXT_TICKS_SHOWN = 5
MAX_SCHEDULES_PER_CALL = 1000


class Schedules:
    """The schedules of an application: `app.schedules`. Without an event loop, use
    `app.run_sync(app.schedules.upsert(…))`.

    - `what` (parameter of the methods): a task without required arguments, or a job built by `task.job(…)`.
    - `declared`: the schedules that code declares, by name; workers write them to the store when they
      start."""

    def __init__(self, client: Client, new_id: Callable[[], str]) -> None:
        self._client, self._new_id = client, new_id
        self.declared: dict[str, ScheduleSpec] = {}

    def declare(self, name: str, what: ScheduledWork, options: ScheduleOptions) -> None:
        """Declares a schedule in code; `app.schedule` calls this. Raises ConfigurationError if the name is
        already declared."""
        if name in self.declared:
            raise ConfigurationError(f"schedule {name!r} is declared twice; give one of them another name")
        self.declared[name] = self._make_spec(name, what, options)

    async def upsert(
        self, name: str, what: ScheduledWork, **options: Unpack[ScheduleUpsertOptions]
    ) -> ScheduleView:
        """Creates or changes a schedule, and returns it: `await app.schedules.upsert("feed-7",
        refresh.job(feed), every=3600)`.

        The same call again changes nothing. A changed cron expression or interval applies from now. Pause,
        override and history stay. `next_at` moves the next tick; the interval is then counted from it. Raises
        ConfigurationError if code declares a schedule of this name."""
        await self.upsert_many([(name, what, options)])
        return await self.get(name)

    async def upsert_many(self, entries: Iterable[tuple[str, ScheduledWork, ScheduleUpsertOptions]]) -> None:
        """Creates or changes many schedules in few calls: `[("feed-7", refresh.job(feed), {"every": 3600}),
        …]`.

        If an entry is invalid, nothing is written. If code declares a schedule of the same name, an error is
        raised; earlier entries may be written already."""
        specs = {name: self._make_upsert_spec(name, what, options) for name, what, options in entries}

        def put(name: str, before: Schedule | None, now: float) -> ScheduleWrite | None:
            if is_unchanged(before, specs[name], ScheduleOrigin.DYNAMIC):
                return None
            return ScheduleWrite(changes.put_schedule(before, name, specs[name], ScheduleOrigin.DYNAMIC, now))

        await change_schedules(await self._client.store(), specs, put)

    async def move(self, name: str, next_at: float | datetime) -> ScheduleView:
        """Moves the next tick of a schedule with `every`, and returns the schedule. The interval is then
        counted from `next_at`.

        A deploy keeps the new times. Raises ConfigurationError for a cron expression, or if an override sets
        the times."""
        return await self._changed(name, partial(changes.move_next_tick, next_at=next_at))

    async def remove(self, *names: str) -> int:
        """Removes schedules and returns how many of them existed. Jobs that they created stay.

        A schedule that code declares comes back with the next worker; remove it from the code."""
        removed: set[str] = set()

        def drop(name: str, before: Schedule | None, _: float) -> ScheduleWrite | None:
            removed.discard(name)  # on a second call another process was faster
            if before is None or before.removed:
                return None
            removed.add(name)
            return ScheduleWrite(changes.remove_schedule(before))

        await change_schedules(await self._client.store(), names, drop)
        return len(removed)

    async def pause(
        self, name: str, *, until: float | datetime | None = None, reason: str | None = None
    ) -> ScheduleView:
        """Pauses the schedule until the time `until`, or until `resume` if `until` is None. Ticks during the
        pause create no jobs, not even after the pause."""
        end = await self._read_end(until)
        return await self._changed(name, partial(changes.pause_schedule, until=end, reason=reason))

    async def resume(self, name: str) -> ScheduleView:
        """Ends a pause; does nothing if there is none."""
        return await self._changed(name, changes.resume_schedule)

    async def override(
        self,
        name: str,
        *,
        by: str,
        reason: str | None = None,
        until: float | datetime | UnsetType | None = UNSET,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleView:
        """Overrides settings of a schedule. A deploy does not remove the override. Settings are added to the
        current override. `until` is the end of the whole override: UNSET keeps the present end, None means no
        end."""
        put_over = _name_in_errors(name, lambda: read_schedule_changes(options))
        edit = join_override(put_over, by=by, reason=reason, until=await self._read_end(until))
        return await self._changed(name, partial(changes.override_schedule, edit=edit))

    async def clear_override(self, name: str, *settings: str) -> ScheduleView:
        """Removes the named settings from the override; without names, all of them."""
        for setting in settings:
            if setting not in ScheduleChanges.__struct_fields__:
                known = ", ".join(ScheduleChanges.__struct_fields__)
                raise ConfigurationError(f"schedule {name!r}: no setting {setting!r}; there are: {known}")
        return await self._changed(name, partial(changes.override_schedule, edit=clear_override(settings)))

    async def run_now(self, name: str) -> JobHandle[Any]:
        """Creates a job of the schedule now, even if the schedule is paused, and returns its handle. The next
        tick stays the same.

        If `overlap` is "skip" and the last job has not ended, no job is created. The handle then belongs to
        the last job and has `existing=True`."""
        while True:
            last, live = await self._last(name)
            if live:
                return JobHandle(self._client, live, existing=True)
            if (job := await self._run(name, last)) is not None:
                return JobHandle(self._client, job, existing=False)

    async def _run(self, name: str, last: str | None) -> str | None:
        """Creates a job and returns its id; None, without a job, if the last job is no longer `last`."""
        job: str | None = None

        def run(_: str, before: Schedule | None, now: float) -> ScheduleWrite | None:
            nonlocal job
            schedule, job = changes.require_schedule(name, before), None
            if schedule.last != last:
                return None
            job = f"{name}@{self._new_id()}"
            made = self._made(schedule, job, now)
            return ScheduleWrite(changes.record_manual_run(schedule, now, job), (made,))

        await change_schedule(await self._client.store(), name, run)
        return job

    async def get(self, name: str) -> ScheduleView:
        """Returns the schedule. Raises ScheduleNotFound if it does not exist or was removed."""
        store = await self._client.store()
        [document] = await store.documents(DocumentKind.SCHEDULE, [name])
        if document is None or document.state == ScheduleState.REMOVED:
            raise changes.schedule_not_found(name)
        if try_decode_schedule(document) is None:
            raise ConfigurationError(f"schedule {name!r}: its record is of a newer version, or damaged")
        return make_schedule_view(document, (await store.read_clock()).wall, NEXT_TICKS_SHOWN)

    async def list(
        self,
        *,
        states: Sequence[ScheduleState | str] = VISIBLE_STATES,
        origin: ScheduleOrigin | str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> SchedulePage:
        """Returns a page of schedules, newest first. `cursor` comes from the previous page. `origin` selects
        schedules declared in code or created at run time."""
        if not 1 <= limit <= MAX_SCHEDULES_PER_CALL:
            raise ConfigurationError(f"limit: must lie between 1 and {MAX_SCHEDULES_PER_CALL}, is {limit}")
        _check_known("states", states, ScheduleState)
        _check_known("origin", () if origin is None else (origin,), ScheduleOrigin)
        store = await self._client.store()
        page = await store.find_documents(
            DocumentKind.SCHEDULE, name=origin, states=list(states), limit=limit, cursor=cursor
        )
        now = (await store.read_clock()).wall
        known = [document for document in page.documents if try_decode_schedule(document) is not None]
        return SchedulePage(tuple(make_schedule_view(document, now, 1) for document in known), page.cursor)

    async def counts(self) -> dict[str, int]:
        """Returns the number of schedules by state."""
        counts = await (await self._client.store()).document_counts(DocumentKind.SCHEDULE)
        return {state.value: counts[state] for state in VISIBLE_STATES if counts.get(state)}

    async def _changed(self, name: str, alter: Callable[[Schedule, float], Schedule]) -> ScheduleView:
        def altered(_: str, before: Schedule | None, now: float) -> ScheduleWrite:
            return ScheduleWrite(alter(changes.require_schedule(name, before), now))

        await change_schedule(await self._client.store(), name, altered)
        return await self.get(name)

    async def _read_end(self, until: float | datetime | NoEnd) -> float | NoEnd:
        now = (await (await self._client.store()).read_clock()).wall
        return parse_end(until, now, ConfigurationError)

    async def _last(self, name: str) -> tuple[str | None, str | None]:
        """Returns two job ids or None: the last job of the schedule, and the job that prevents a new one.

        The last job prevents a new one if `overlap` is "skip" and the last job has not ended."""
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
        return build_tick_job(schedule, task, settings_in_force(schedule, now).overlap, job, None)

    def _make_spec(self, name: str, what: ScheduledWork, options: Mapping[str, Any]) -> ScheduleSpec:
        if problem := problem_with_schedule_name(name):
            raise ConfigurationError(f"schedule: {problem}")
        return _name_in_errors(name, lambda: ScheduleSpec(self._work(what), read_schedule_settings(options)))

    def _make_upsert_spec(
        self, name: str, what: ScheduledWork, options: ScheduleUpsertOptions
    ) -> ScheduleSpec:
        rule: dict[str, Any] = {**options}
        next_at = rule.pop("next_at", None)
        spec = self._make_spec(name, what, rule)
        return spec._replace(next_at=_name_in_errors(name, lambda: read_next_at(next_at, spec.settings)))

    def _work(self, what: ScheduledWork) -> Any:
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
        return make_schedule_work(what.queue, what.job, task)


def _name_in_errors(name: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except (ConfigurationError, EnqueueError) as error:
        raise ConfigurationError(f"schedule {name!r}: {error}") from None


def _check_known(field: str, values: Iterable[str], known: type[StrEnum]) -> None:
    for value in values:
        if value not in list(known):
            raise ConfigurationError(f"{field}: must be one of {', '.join(known)}, is {value!r}")
