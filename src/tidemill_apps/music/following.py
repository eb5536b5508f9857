"""Carries what the table of settings says to the queues and pools, on every worker, every two seconds."""

from __future__ import annotations

import structlog

from tidemill import PoolStatus, QueueView, Tidemill
from tidemill_apps.music.limits import RATED_BY_SETTING, WORK_QUEUES, Pools
from tidemill_apps.music.system_settings import Found, SystemSettings

log = structlog.get_logger("tidemill_apps.music")

LOOK_EVERY = 2.0
BY = "music settings"
REASON = "the table system_settings says so"


class Follower:
    """Whoever comes first carries it; the others find it done. Of a row that cannot hold nothing is carried:
    what is in force stays."""

    def __init__(self, app: Tidemill, settings: SystemSettings, pools: Pools) -> None:
        self._app, self._settings, self._pools = app, settings, pools
        self._told: tuple[str, ...] = ()

    async def follow(self) -> None:
        found = await self._settings.read()
        self._tell(found)
        if "queue_concurrency" in found.good:
            for queue in WORK_QUEUES:
                view = await self._app.inspect.queue(queue, sparing=True)
                await self._set_concurrency(view, found.live.queue_concurrency)
        if "queue_rate_limit_max" in found.good:
            for queue in RATED_BY_SETTING:
                status = await self._app.inspect.pool(self._pools.starts[queue].name, sparing=True)
                await self._set_starts(status, float(found.live.queue_rate_limit_max))

    async def _set_concurrency(self, view: QueueView, wanted: int) -> None:
        if view.settings.concurrency == wanted:
            return
        if view.declared.concurrency == wanted:
            await self._app.inspect.clear_override(view.name, "concurrency")
        else:
            await self._app.inspect.override(view.name, by=BY, reason=REASON, concurrency=wanted)
        log.info("settings_followed", queue=view.name, concurrency=wanted)

    async def _set_starts(self, status: PoolStatus, wanted: float) -> None:
        (limit,) = status.limits
        if limit.amount == wanted:
            return
        if limit.declared == wanted:
            await self._app.inspect.clear_pool_override(status.name, limit.name)
        else:
            await self._app.inspect.override_pool(status.name, {limit.name: wanted}, by=BY, reason=REASON)
        log.info("settings_followed", pool=status.name, limit=limit.name, amount=wanted)

    def _tell(self, found: Found) -> None:
        """Each problem once, not every two seconds."""
        for problem in found.problems:
            if problem not in self._told:
                log.warning("setting_refused", problem=problem)
        self._told = found.problems
