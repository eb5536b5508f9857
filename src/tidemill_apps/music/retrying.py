"""Jobs that are tried again after an error: a provider that is away is told before songs fail of it."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from tidemill import Filter, Tidemill
from tidemill_apps.music.library import Library
from tidemill_apps.music.standing import LIVE

REASONS_SHOWN = 3
AT_ONCE = 200


class Retrying(Struct, frozen=True):
    """So many jobs are tried again because of this."""

    error: str
    jobs: int


async def retrying(app: Tidemill, library: Library) -> list[Retrying]:
    """The commonest errors first. The songs say which jobs to look at: among thousands that wait, few."""
    ids = (await library.jobs_with_errors())[:AT_ONCE]
    if not ids:
        return []
    page = await app.inspect.find(Filter(ids=tuple(ids), states=LIVE), limit=AT_ONCE, looks=None)
    errors = Counter(job.error.message for job in page.jobs if job.attempts and job.error is not None)
    return [Retrying(error, jobs) for error, jobs in errors.most_common(REASONS_SHOWN)]
