"""The queues and pools of the music application. Also applies the live settings to them, and interprets a 429
that gives no details."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from tidemill import Day, Limit, Pool, Reason, Refusal, Retention, Tidemill
from tidemill_apps.common.live_settings import LiveSettingsTable, SettingOverrides
from tidemill_apps.music.settings import LiveSettings, MusicSettings

HTTP_TOO_MANY_REQUESTS = 429
_HINT = re.compile(
    r"retry-?delay|\b(?:re)?try (?:again )?(?:in|after)\b|per ?(?:day|hour|min|sec)|\bdaily\b|\bbilling\b",
    re.IGNORECASE,
)
_QUOTA_WORDS = re.compile(r"quota|exhausted|配额|额度|用完", re.IGNORECASE)
_MAX_TEXT_CHARS = 200  # characters of the answer to show


def classify_hintless_429(error: object, seconds: float) -> Refusal | None:
    """Returns a refusal for a 429 response that says neither how long to wait nor which limit was hit.
    Returns None for any other error, which Tidemill then classifies itself. The refusal closes the pool for
    `seconds`."""
    response = getattr(error, "response", error)
    if getattr(response, "status_code", None) != HTTP_TOO_MANY_REQUESTS:
        return None
    headers: Mapping[str, str] = getattr(response, "headers", None) or {}
    said = str(getattr(response, "text", ""))
    if any(name.lower().startswith("retry-after") for name in headers):
        return None
    if _HINT.search(said) or _has_error_code(said):
        return None
    return Refusal(
        reason=Reason.UNKNOWN,
        retry_after=seconds,
        then=Reason.DAY_QUOTA if _QUOTA_WORDS.search(said) else None,
        status=HTTP_TOO_MANY_REQUESTS,
        text=said[:_MAX_TEXT_CHARS],
    )


def _has_error_code(said: str) -> bool:
    """True if the JSON error in the response body `said` has a text as `code` or `type`, as in the OpenAI
    API."""
    try:
        error = msgspec.json.decode(said, type=dict[str, object]).get("error")
    except msgspec.DecodeError:
        return False
    return isinstance(error, dict) and any(isinstance(error.get(name), str) for name in ("code", "type"))


FULL_QUEUE, METADATA_QUEUE, EMBEDDING_QUEUE = "metadata-generation", "metadata-only", "embedding-only"
WORK_QUEUES = (FULL_QUEUE, METADATA_QUEUE, EMBEDDING_QUEUE)
PIPELINE_QUEUE = "music-pipeline"
CALLS_POOL = "music-calls"
QUEUES_RATED_BY_SETTING = (FULL_QUEUE, METADATA_QUEUE)
"""Queues whose job starts are limited by the setting `queue_rate_limit_max`."""

MAX_FAILED_JOBS_KEPT = 1000
CRASH_LIMIT = 3
"""A job runs again at most twice after its worker died."""


class MusicPools:
    """The pools of the music application. `calls` counts provider calls. `starts` has one pool per queue,
    which counts job starts."""

    def __init__(self, app: Tidemill, settings: MusicSettings) -> None:
        self.calls = _declare_calls_pool(app, settings)
        self.starts = {
            queue: app.pool(
                starts_pool_name(queue),
                Limit.jobs(_starts_per_minute(queue, settings), per=settings.minute_seconds),
                jitter=settings.calls.jitter,
            )
            for queue in WORK_QUEUES
        }


def declare_queues(app: Tidemill) -> None:
    for queue in WORK_QUEUES:
        app.queue(
            queue,
            concurrency=1,
            crash_limit=CRASH_LIMIT,
            keep_done=Retention(age=0.0),
            keep_failed=Retention(count=MAX_FAILED_JOBS_KEPT),
        )
    app.queue(PIPELINE_QUEUE, concurrency=1, crash_limit=CRASH_LIMIT)


def starts_pool_name(queue: str) -> str:
    """Returns the name of the pool that counts the queue's job starts."""
    return f"{queue}-starts"


def _starts_per_minute(queue: str, settings: MusicSettings) -> int:
    return settings.embedding_starts if queue == EMBEDDING_QUEUE else settings.metadata_starts


def _declare_calls_pool(app: Tidemill, settings: MusicSettings) -> Pool:
    calls = settings.calls
    limits = [Limit.requests(calls.per_minute, per=settings.minute_seconds, shape=calls.shape)]
    if calls.per_day:
        limits.append(Limit.requests(calls.per_day, per=Day(calls.zone)))

    def classify(error: object) -> Refusal | None:
        return classify_hintless_429(error, calls.breaker_seconds)

    return app.pool(
        CALLS_POOL,
        *limits,
        jitter=calls.jitter,
        midnight=calls.midnight_seconds,
        resumes=settings.resumes,
        classify=classify,
    )


SYNC_INTERVAL_SECONDS = 2.0


class LiveSettingsSync:
    """Applies the live settings to queues and pools. If a setting is invalid, its queues and pools keep their
    values."""

    def __init__(self, app: Tidemill, settings: LiveSettingsTable[LiveSettings], pools: MusicPools) -> None:
        self._settings, self._pools = settings, pools
        self._overrides = SettingOverrides(
            app, by="music settings", reason="set in the table system_settings"
        )

    async def apply(self) -> None:
        found = await self._settings.read()
        self._overrides.log_problems(found.problems)
        if "queue_concurrency" in found.valid_keys:
            for queue in WORK_QUEUES:
                await self._overrides.set_concurrency(queue, found.live.queue_concurrency)
        if "queue_rate_limit_max" in found.valid_keys:
            for queue in QUEUES_RATED_BY_SETTING:
                pool = self._pools.starts[queue].name
                await self._overrides.set_limit(pool, float(found.live.queue_rate_limit_max))
