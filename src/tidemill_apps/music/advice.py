"""What waits for a person and what to do: sentences for `GET /api/queue/status`, numbers for the page."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tidemill_apps.music import runs
from tidemill_apps.music.library import Library
from tidemill_apps.music.songs import Failure
from tidemill_apps.music.standing import Standing

COMMAND = "tidemill jobs retry --state failed --app music"


class Advice(Struct, frozen=True):
    """Songs left out of answers that are `coming` again by themselves, and that are `waiting` for a start.
    `failures` are the commonest reasons why `failed` songs are."""

    coming: int
    waiting: int
    failed: int
    failures: Sequence[Failure]

    def told(self) -> list[str]:
        out = "left out of the model's answers"
        said = []
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


async def advice(library: Library, stands: Standing, failed: int) -> Advice:
    since = await runs.since(library) if stands.again else None
    coming = 0 if since is None else await library.left_out(since)
    waiting = max(0, await library.left_out() - coming)  # they may have been sent between the two looks
    failures = await library.failures() if failed else []
    return Advice(coming=coming, waiting=waiting, failed=failed, failures=failures)


def _songs(number: int) -> str:
    return "1 song" if number == 1 else f"{number} songs"
