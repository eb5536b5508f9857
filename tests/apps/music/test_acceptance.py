"""The whole of it: a real music server, a simulated Gemini over HTTP, worker processes that are killed.

What was called, refused and billed is counted by the provider's own books."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

import pytest

from tests.apps.music.fleet import Shifted
from tests.apps.music.music_server import MusicServer
from tests.apps.music.studio import CALLS, FULL_LENGTH, MINUTE, gemini, studio, wrong_vectors
from tidemill import TimeOfDay
from tidemill.testing.providers import Quota, Reason
from tidemill_apps.music.pipeline import Start
from tidemill_apps.music.standing import Stage, Standing
from tidemill_apps.music.syncing import sync

SONGS = 500
BATCH = 10 if FULL_LENGTH else 20
JOBS = SONGS // BATCH
TO_MIDNIGHT = 300.0 if FULL_LENGTH else 15.0
"""Seconds in which workers start and use up the day."""

pytestmark = [pytest.mark.alone, pytest.mark.timeout(4000)]


def at(server: MusicServer) -> dict[str, str]:
    return {
        "MUSIC_SUBSONIC_URL": server.url,
        "MUSIC_SUBSONIC_USER": server.user,
        "MUSIC_SUBSONIC_PASSWORD": server.password,
        "MUSIC_SUBSONIC_AUTH": "password",
    }


async def test_five_hundred_songs_within_the_quota_and_as_foretold(
    tmp_path: Path, subsonic: MusicServer
) -> None:
    provider = gemini()
    async with studio(tmp_path, provider, at(subsonic)) as its:
        await its.processes.start(2)
        subsonic.hold(SONGS)  # while they start
        await its.music.system_settings.write("queue_batch_size", BATCH)
        await its.until_served()
        await sync((await its.music.connections.open()).source, its.music.library)
        foretold = await its.music.pipeline.preview(Start())
        began = monotonic()
        await its.music.pipeline.start(Start())
        await its.until_idle()
        took = monotonic() - began
        assert await its.counts() == {"COMPLETED": SONGS}
        assert await wrong_vectors(its.music.library) == []
    books = provider.ledger
    assert books.refused == []
    assert books.paid_again() == {}
    assert books.busiest("requests", 60) <= CALLS
    assert (foretold.songs, foretold.jobs, foretold.calls) == (SONGS, JOBS, 2 * JOBS)
    assert len(books.bills) == foretold.calls
    assert foretold.seconds == pytest.approx(took, rel=0.1)


async def test_nothing_is_paid_twice_though_workers_die_between_the_calls(
    tmp_path: Path, subsonic: MusicServer
) -> None:
    provider = gemini()
    async with studio(tmp_path, provider, at(subsonic)) as its:
        await its.processes.start(3)
        subsonic.hold(60)
        await its.music.pipeline.start(Start())
        for _ in range(2):
            await its.kill_between_calls()
        await its.until_idle()
        assert await its.counts() == {"COMPLETED": 60}
        assert await wrong_vectors(its.music.library) == []
    assert provider.ledger.refused == []
    assert provider.ledger.paid_again() == {}
    assert len(provider.ledger.bills) == 12


async def test_a_day_that_is_used_up_ends_at_the_stored_time_after_a_restart_of_everything(
    tmp_path: Path, subsonic: MusicServer
) -> None:
    """Midnight in Los Angeles is a few seconds away, for the provider a moment sooner than for us."""
    subsonic.hold(80)
    clock = Shifted(0.0)
    midnight = TimeOfDay(0, 0, "America/Los_Angeles").after(clock.wall())
    shift = midnight - TO_MIDNIGHT - clock.wall()
    start = midnight - (TO_MIDNIGHT - 1.0) * 60.0 / MINUTE
    provider = gemini(Quota.day("requests", 8, zone="America/Los_Angeles"), start=start)
    given = at(subsonic) | {"MUSIC_RESUME_AT": "0:00 America/Los_Angeles"}
    async with studio(tmp_path, provider, given, shift=shift) as its:
        await its.processes.start(2)
        await its.music.pipeline.start(Start())
        stands = await its.until(lambda stands: _waits_for(stands, midnight), "the breaker")
        assert stands.breaker is not None
        refused = len(provider.ledger.refused)
        await its.restart(2)
        again = await its.music.pipeline.standing()
        assert (again.stage, again.breaker) == (Stage.BREAKER, stands.breaker)
        await its.until_idle()
        assert await its.counts() == {"COMPLETED": 80}
    books = provider.ledger
    assert {refusal.reason for refusal in books.refused} == {Reason.DAY}
    assert len(books.refused) == refused
    assert len(books.bills) == 16
    assert books.paid_again() == {}


def _waits_for(stands: Standing, wall: float) -> bool:
    return stands.stage is Stage.BREAKER and stands.breaker is not None and stands.breaker.until == wall


@pytest.mark.parametrize("store", ["redis", "postgres"])
async def test_the_same_on_servers(
    store: str, tmp_path: Path, subsonic: MusicServer, request: pytest.FixtureRequest
) -> None:
    """Jobs on the server, and on PostgreSQL the songs as well."""
    subsonic.hold(60)
    url = request.getfixturevalue(f"{store}_url")
    given = at(subsonic) | ({"MUSIC_DATABASE_URL": url} if store == "postgres" else {})
    provider = gemini()
    async with studio(tmp_path, provider, given, jobs=url) as its:
        await its.processes.start(2)
        await its.music.pipeline.start(Start())
        await its.until_idle()
        assert await its.counts() == {"COMPLETED": 60}
        assert await wrong_vectors(its.music.library) == []
    assert provider.ledger.refused == []
    assert provider.ledger.paid_again() == {}
    assert len(provider.ledger.bills) == 12
