"""What was promised beside what was seen, and what to try next."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from tidemill.core.states import State
from tidemill.demo.story import HOSTS, LETTERS, PAGES, PAUSE, SONGS, Told
from tidemill.demo.tasks import BUSY_LINES, CRASH_LIMIT, FILE
from tidemill.demo.witness import Witness

CLOCKS_APART = 0.05
"""The pause ends by the wall clock, the witness reads the loop's."""


def promises(told: Told, witness: Witness, deaths: int) -> list[tuple[bool, str]]:
    """Whether it holds, and what."""
    return [_all_ended(told), *_failures(told, witness, deaths), *_steering(told, witness)]


def _all_ended(told: Told) -> tuple[bool, str]:
    ends = told.endings()
    expected = {State.DONE: SONGS + LETTERS + PAGES * len(HOSTS), State.FAILED: 2, State.CANCELLED: 1}
    parts = ", ".join(f"{ends[state]} {state}" for state in expected)
    return ends == expected, f"{len(told.expected_runs)} jobs enqueued, {ends.total()} ended: {parts}"


def _failures(told: Told, witness: Witness, deaths: int) -> Iterator[tuple[bool, str]]:
    retried = [job for job in told.of("songs:describe", State.DONE) if witness.runs[job.id] > 1]
    yield (
        len(retried) == SONGS // 10 * len(BUSY_LINES),
        f"{len(retried)} songs met a busy line and were done at their second attempt",
    )
    given_up = told.of("songs:describe", State.FAILED)
    yield (
        [job.attempts for job in given_up] == [1],
        f"{len(given_up)} song failed for good at its first attempt, and is kept with its error",
    )
    poison = [job for job in told.of("risky:convert", State.FAILED) if job.reason == "poison"]
    yield (
        (len(poison), deaths) == (1, CRASH_LIMIT),
        f"{len(poison)} job killed its process {deaths} times and is set aside as poison",
    )
    neighbours = told.expected_runs.keys() - {job.id for job in poison}
    unharmed = sum(witness.runs[job] == told.expected_runs[job] for job in neighbours)
    yield (
        unharmed == len(neighbours),
        f"{unharmed} of its {len(neighbours)} neighbours ran exactly as often as they should",
    )


def _steering(told: Told, witness: Witness) -> Iterator[tuple[bool, str]]:
    cancelled = len(told.of("songs:play", State.CANCELLED))
    yield (
        (cancelled, witness.interrupted) == (1, 1),
        f"{cancelled} job was cancelled while it ran, and its handler interrupted",
    )
    waited = (witness.first_letter or 0) - witness.paused
    yield (
        waited >= PAUSE - CLOCKS_APART,
        f"mail was paused for {PAUSE:g} s: the first letter left after {waited:.1f} s",
    )
    most = max(witness.most_at_once.values(), default=0)
    yield most == 1, f"hosts never ran more than {most} job per host at once"


def next_steps(told: Told) -> list[str]:
    """Commands that can be pasted: on the demo's file, about its poison job."""
    tidemill, url = _command(), f"--url sqlite:///{FILE}"
    poison = next((job.id for job in told.ended if job.reason == "poison"), told.ended[0].id)
    return [
        f"{tidemill} jobs {url} --state failed",
        f"{tidemill} explain {_short(poison, told)} {url}",
        f"{tidemill} top {url}",
    ]


def dashboard_step() -> str:
    return f"{_command()} web tidemill.demo.tasks:app"


def _short(job: str, told: Told) -> str:
    """As much of the id as only this job has, so that the command stays on one line."""
    others = [other for other in told.expected_runs if other != job]
    lengths = (n for n in range(8, len(job)) if not any(other.startswith(job[:n]) for other in others))
    return job[: next(lengths, len(job))]


def _command() -> str:
    """How the command line of this installation is called from here."""
    here = Path(sys.executable).with_name("tidemill")
    if shutil.which("tidemill") == str(here):
        return "tidemill"
    return str(here.relative_to(Path.cwd())) if here.is_relative_to(Path.cwd()) else str(here)
