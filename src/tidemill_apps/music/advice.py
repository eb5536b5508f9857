"""What waits for a person and what to do: sentences for `GET /api/queue/status`, numbers for the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from tidemill_apps.music import runs
from tidemill_apps.music.retrying import Retrying, retrying
from tidemill_apps.music.rows import WAITING
from tidemill_apps.music.songs import Failure
from tidemill_apps.music.standing import Stage, Standing

if TYPE_CHECKING:
    from tidemill_apps.music.music import Music

COMMAND = "tidemill jobs retry --state failed --app music"


class Advice(Struct, frozen=True, kw_only=True):
    """Songs left out of answers that are `coming` again by themselves, and that are `waiting` for a start.
    `failures` are the commonest reasons why `failed` songs are. While it is idle: how many songs are
    `pending`, and `described` without a vector; `nothing`: the last start found none to take."""

    coming: int
    waiting: int
    failed: int
    failures: Sequence[Failure]
    retrying: Sequence[Retrying]
    pending: int = 0
    described: int = 0
    nothing: bool = False

    def told(self) -> list[str]:
        out = "left out of the model's answers"
        said = [f"{_number(one.jobs, 'job')} being tried again: {one.error}" for one in self.retrying]
        if self.nothing:
            said.append("the last start found nothing to do: no song waited for it")
        if self.pending:
            said.append(f"{_songs(self.pending)} waiting to be described: start to have them done")
        if self.described:
            said.append(
                f"{_songs(self.described)} described and without a vector: start, in full or with work "
                '"embedding", to have it made'
            )
        if self.coming:
            said.append(f"{_songs(self.coming)} {out}: asked about once more when all else is done")
        if self.waiting:
            said.append(f"{_songs(self.waiting)} {out}: waiting; start again to have them asked about")
        if self.failed:
            said.append(
                f"{_songs(self.failed)} failed (see failures): when that is mended, POST /api/queue/retry "
                f"has them run again, or for those whose job is a dead letter: {COMMAND}"
            )
        return said


async def advice(music: Music, stands: Standing, failed: int) -> Advice:
    library = music.library
    since = await runs.since(library) if stands.again else None
    coming = 0 if since is None else await library.left_out(since)
    waiting = max(0, await library.left_out() - coming)  # they may have been sent between the two looks
    failures = await library.failures() if failed else []
    idle = stands.stage is Stage.IDLE
    pending, described = [await library.waiting(of, untried=True) if idle else 0 for of in WAITING]
    return Advice(
        coming=coming,
        waiting=waiting,
        failed=failed,
        failures=failures,
        retrying=await retrying(music.app, library),
        pending=pending,
        described=described,
        nothing=idle and await music.pipeline.found_nothing(),
    )


def _songs(number: int) -> str:
    return _number(number, "song")


def _number(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number} {what}s"
